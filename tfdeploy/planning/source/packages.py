"""Finds the package that provides a missing module, so that a message can say what to install.

The table lists, as module=package, only packages whose name differs from the name of the module.
"""

from __future__ import annotations

import sys

from tfdeploy.planning.source import python2

_PACKAGES = """
    Bio=biopython Crypto=pycryptodome Cython=cython IPython=ipython MySQLdb=mysqlclient
    OpenSSL=pyOpenSSL PIL=Pillow absl=absl-py attr=attrs bs4=beautifulsoup4
    cv2=opencv-python-headless dateutil=python-dateutil distutils=setuptools
    dotenv=python-dotenv faiss=faiss-cpu git=GitPython google=protobuf
    googleapiclient=google-api-python-client hydra=hydra-core jwt=PyJWT kafka=kafka-python
    official=tf-models-official paho=paho-mqtt past=future pkg_resources=setuptools<81
    psycopg2=psycopg2-binary pynvml=nvidia-ml-py pywt=PyWavelets ruamel=ruamel.yaml
    serial=pyserial skimage=scikit-image sklearn=scikit-learn sonnet=dm-sonnet
    surprise=scikit-surprise tensorflow_core=tensorflow yaml=PyYAML zmq=pyzmq
"""
# Modules that left Python's standard library: with Python 3.12 (first line) and 3.13 (the others).
_DROPPED = """
    asynchat asyncore imp smtpd
    aifc audioop cgi cgitb chunk crypt imghdr lib2to3 mailcap msilib nis nntplib ossaudiodev pipes
    sndhdr spwd sunau telnetlib uu xdrlib
"""


def package_providing(module: str) -> str | None:
    """Return the package that a user must install to get the module.

    Returns None for a standard module of Python 2 or 3, because no package provides it.
    """
    standard = {*sys.stdlib_module_names, *_DROPPED.split(), *python2.MODULES}
    packages = dict(pair.split("=") for pair in _PACKAGES.split())
    return packages.get(module, None if module in standard else module)
