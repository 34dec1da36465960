"""What the Python package needs of PyTorch and Megatron-LM to be imported: classes to subclass and to annotate with.

Sphinx stands in for all else of them, but its stand-ins are no classes: signatures of what they are subclassed to
would be lost.
"""
import sys

from sphinx.ext.autodoc.mock import _MockModule


class Applied:
    apply = None
    _backward_cls = None


# Module -> its classes, with the class that each is made from.
CLASSES = {
    "torch": {"Tensor": object},
    "torch.nn": {"Module": object},
    "torch.autograd": {"Function": Applied},
    "megatron.core.models.mimo": {"MimoModel": object},
    "megatron.core.models.mimo.comm": {},
    "megatron.core.models.mimo.comm.colocated_communicator": {"ColocatedBridgeCommunicator": object},
}


def install():
    for name, classes in CLASSES.items():
        module = sys.modules[name] = _MockModule(name)
        for kind, base in classes.items():
            setattr(module, kind, type(kind, (base,), {"__module__": name}))
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], child, module)
