"""A package that exists only to contain `tutorials.mnist.input_data`."""
