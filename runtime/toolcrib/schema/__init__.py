"""JSON Schemas: repaired, merged, dereferenced, compared, generated from, validated against."""
