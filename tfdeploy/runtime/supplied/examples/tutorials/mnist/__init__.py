"""Supply the package of the MNIST tutorial, so that `from tensorflow.examples.tutorials.mnist
import input_data` works."""
