"""A step on the way to `tutorials.mnist.input_data`."""
