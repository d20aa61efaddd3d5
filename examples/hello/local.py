"""Hello from a TensorFlow server in this very process.

    python local.py

This is the smallest program that uses the distributed runtime.
"""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

server = tf.train.Server.create_local_server()
greeting = tf.constant("Hello, distributed TensorFlow!")
with tf.Session(server.target) as session:
    print(session.run(greeting).decode())
    print("devices: %s" % ", ".join(sorted(device.name for device in session.list_devices())))
