"""What every room stands on: tables, errors, ids, statistics, kernels, files."""
