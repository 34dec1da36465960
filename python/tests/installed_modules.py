"""Imports each module of the installed package, those over Megatron-LM where megatron_import.py finds it. Then it does
what `python -m mimo_bridge` does. torch_installed.py runs it."""
import importlib
import os
import pkgutil
import runpy
import warnings

import megatron_import
import mimo_bridge

OVER_MEGATRON = {"megatron", "_moe"}

print("package", os.path.dirname(mimo_bridge.__file__))
names = {module.name for module in pkgutil.iter_modules(mimo_bridge.__path__)}
if megatron_import.folder():
    warnings.simplefilter("ignore")
    megatron_import.import_ours(megatron_import.folder())
else:
    print("left out, without Megatron-LM:", *OVER_MEGATRON)
    names -= OVER_MEGATRON
for name in sorted(names - {"__main__"}):
    importlib.import_module(f"mimo_bridge.{name}")
print(f"{len(names)} modules", flush=True)
runpy.run_module("mimo_bridge", run_name="__main__", alter_sys=True)
