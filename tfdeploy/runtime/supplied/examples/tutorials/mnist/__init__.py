"""Supply the package of the MNIST tutorial, for `from tensorflow.examples.tutorials.mnist import
input_data`."""
