"""Multi-head attention residuals: data preparation, reports and PyTorch access for the mhar program."""

__version__ = "0.1.0"
