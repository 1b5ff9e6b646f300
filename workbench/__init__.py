"""A workbench for pretraining language models with MindSpore.

Importing the package sets the process environment that MindSpore reads when it is first
imported, and nothing else: no MindSpore import happens here, so ``workbench --help`` is quick.
A value the user has already set is never replaced.
"""

import os

__version__ = "0.1.0"

# graph_pipeline: with it on, the main thread busy-waits while a compiled function runs from
#   PyNative mode and steals half a core of two (tests/bench keeps measuring whether this helps).
# OMP_WAIT_POLICY: OpenMP workers spin between kernels otherwise, with the same effect.
# GLOG_v: 3 shows MindSpore's errors and hides its INFO and WARNING lines.
# Not set: MS_COMPILER_CACHE_ENABLE. The second process then starts its first step in 2 seconds
#   instead of 33, with another loss and a gradient norm of NaN (MindSpore 2.10, CPU, 2026-11-30).
# TOKENIZERS_PARALLELISM: the Rust tokenizer's threads do not survive the fork of data workers.
for _name, _value in {
    "MS_DEV_RUNTIME_CONF": "graph_pipeline:False",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GLOG_v": "3",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}.items():
    os.environ.setdefault(_name, _value)
