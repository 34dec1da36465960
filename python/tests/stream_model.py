"""Streams that record, in place of torch.cuda: which operation may run before which, by vector clocks.

Operations run at once, on the CPU. On a device each would run when all that its stream was told to wait for has run.
So a tick is counted for each operation of a stream, an event has the ticks that its stream knows of, and a stream that
waits knows them as well. A fault is
- an operation that reads memory which another stream wrote at a tick that this stream does not know, or writes memory
  that another stream used at one;
- memory that is freed while the stream which it belongs to (that on which it was made) does not know of all uses: what
  is enqueued there next may get it.
"""
from collections import defaultdict

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Stream:
    def __init__(self, model, name):
        self.model, self.name, self.known = model, name, defaultdict(int)

    def learn(self, ticks):
        self.model.poll()
        for name, tick in ticks.items():
            self.known[name] = max(self.known[name], tick)

    def wait_event(self, event):
        self.model.waits += 1
        self.learn(event.known)

    def wait_stream(self, other):
        self.learn(other.known)


class Event:
    def __init__(self, model):
        self.model, self.known = model, None
        model.events += 1

    def record(self, stream):
        self.known = dict(stream.known)


class Using:
    """torch.cuda.stream()."""

    def __init__(self, model, stream):
        self.model, self.stream = model, stream

    def __enter__(self):
        self.before, self.model.current = self.model.current, self.stream

    def __exit__(self, *_error):
        self.model.poll()
        self.model.current = self.before


class Streams(TorchDispatchMode):
    """A block in which a module's `_cuda` is this, and operations are recorded."""

    def __init__(self, module):
        super().__init__()
        self.module, self.faults = module, []
        self.uses = {}  # of a storage: [a weak reference, its stream, the last write, {stream: tick of its last use}]
        self.streams = self.events = self.waits = self.crossed = self.freed = 0
        self.current = self.Stream()

    # What the module asks of torch.cuda.

    def Stream(self, _device=None, priority=0):
        self.streams += 1
        return Stream(self, f"stream {self.streams - 1}")

    def Event(self):
        return Event(self)

    def current_stream(self, _device):
        return self.current

    def is_current_stream_capturing(self):
        return False

    def stream(self, stream):
        return Using(self, stream)

    def __enter__(self):
        self.kept, self.module._cuda = self.module._cuda, self
        return super().__enter__()

    def __exit__(self, *error):
        self.module._cuda = self.kept
        return super().__exit__(*error)

    # What operations do.

    def known(self, tensors):
        """These are older than all streams."""
        for tensor in tensors:
            self.storage_of(tensor)[1] = None

    def storage_of(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.uses:
            self.uses[storage._cdata] = [StorageWeakRef(storage), self.current, None, {}]
        return self.uses[storage._cdata]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.poll()
        stream = self.current
        stream.known[stream.name] += 1
        given = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
        written = {id(value) for argument, value in zip(function._schema.arguments, args)
                   if argument.alias_info is not None and argument.alias_info.is_write}
        for x in given:
            self.use(function, x, id(x) in written)
        result = function(*args, **(kwargs or {}))
        for y in tree_iter(result):
            if isinstance(y, torch.Tensor) and y.untyped_storage()._cdata not in self.uses:
                self.use(function, y, True)
        return result

    def use(self, function, tensor, writes):
        stream, record = self.current, self.storage_of(tensor)
        _, _, last, uses = record
        before = uses.items() if writes else [last] if last else []
        for name, tick in before:
            self.crossed += name != stream.name
            if stream.known[name] < tick:
                self.faults.append(f"{function} on {stream.name} beside what {name} does")
        uses[stream.name] = stream.known[stream.name]
        if writes:
            record[2] = stream.name, stream.known[stream.name]

    def poll(self):
        """Look at what was freed meanwhile."""
        for key, (reference, owner, _, uses) in list(self.uses.items()):
            if not reference.expired():
                continue
            del self.uses[key]
            self.freed += 1
            for name, tick in uses.items():
                if owner is not None and owner.known[name] < tick:
                    self.faults.append(f"memory of {owner.name} is freed while {name} uses it")
