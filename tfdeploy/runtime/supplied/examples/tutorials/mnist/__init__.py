"""The folder of the MNIST tutorial: `from tensorflow.examples.tutorials.mnist import
input_data`."""
