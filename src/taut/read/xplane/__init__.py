"""Profiles of JAX, TensorFlow and other users of XLA: XSpace protobufs (``.xplane.pb``) and their ``.trace.json.gz``."""
