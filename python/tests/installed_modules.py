"""Imports each module of the installed package: those over Megatron-LM, torchtitan and transformers where
megatron_import.py, titan_import.py and Python find these. Then it does what `python -m mimo_bridge` does.
torch_installed.py runs it."""
import importlib
import importlib.util
import os
import pkgutil
import runpy
import warnings

import megatron_import
import mimo_bridge
import titan_import

OVER_MEGATRON = {"megatron", "_hops", "_moe", "_pipeline_checks", "_pipelined"}

print("package", os.path.dirname(mimo_bridge.__file__))
names = {module.name for module in pkgutil.iter_modules(mimo_bridge.__path__)}
if megatron_import.folder():
    warnings.simplefilter("ignore")
    megatron_import.import_ours(megatron_import.folder())
else:
    print("left out, without Megatron-LM:", *OVER_MEGATRON)
    names -= OVER_MEGATRON
if titan_import.folder():
    titan_import.import_ours(titan_import.folder())
else:
    print("left out, without torchtitan: torchtitan")
    names.remove("torchtitan")
if not importlib.util.find_spec("transformers"):
    print("left out, without transformers: hf hf_experts")
    names -= {"hf", "hf_experts"}
for name in sorted(names - {"__main__"}):
    importlib.import_module(f"mimo_bridge.{name}")
print(f"{len(names)} modules", flush=True)
runpy.run_module("mimo_bridge", run_name="__main__", alter_sys=True)
