"""A turn of a model's tool loop, part by part."""
