"""What all imports have in common: secrets, mocks, the record of an import, and the merge with the files of an earlier one."""
