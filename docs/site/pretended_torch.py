"""What the Python package needs of PyTorch to be imported: classes to subclass and to annotate with."""
import sys

from sphinx.ext.autodoc.mock import _MockModule


class Tensor:
    pass


class Applied:
    apply = None


class Function(Applied):
    pass


class Module:
    pass


def install():
    torch = sys.modules["torch"] = _MockModule("torch")
    torch.nn = sys.modules["torch.nn"] = _MockModule("torch.nn")
    torch.autograd = sys.modules["torch.autograd"] = _MockModule("torch.autograd")
    torch.Tensor, torch.nn.Module, torch.autograd.Function = Tensor, Module, Function
    for kind in (Tensor, Module, Function):
        kind.__module__ = "torch"
