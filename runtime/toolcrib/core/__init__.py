"""What everything else uses: values, errors, contracts, time."""
