"""Packages that Determined's images had, and that training code therefore imports without naming them anywhere."""

from __future__ import annotations

from typing import Dict

#: a module -> what pip calls its package. Not those that every run has from the host bundle (psutil, pynvml).
PACKAGES: Dict[str, str] = {
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "appdirs": "appdirs",
    "argcomplete": "argcomplete",
    "azure.core": "azure-core",
    "azure.storage.blob": "azure-storage-blob",
    "boto3": "boto3",
    "botocore": "boto3",
    "certifi": "certifi",
    "dateutil": "python-dateutil",
    "docker": "docker",
    "filelock": "filelock",
    "git": "GitPython",
    "google.cloud.storage": "google-cloud-storage",
    "googleapiclient": "google-api-python-client",
    "lomond": "lomond",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "packaging": "packaging",
    "pandas": "pandas",
    "paramiko": "paramiko",
    "pathspec": "pathspec",
    "pytz": "pytz",
    "requests": "requests",
    "ruamel.yaml": "ruamel.yaml",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "tabulate": "tabulate",
    "tensorboard": "tensorboard",
    "termcolor": "termcolor",
    "torch": "torch",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
