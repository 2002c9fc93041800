"""Start a trial's ranks on one host: `python3 -m trainmaster.launch.torch_distributed train.py`."""
