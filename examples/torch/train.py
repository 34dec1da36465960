"""Trains an image encoder and a small language model to name emoji, on the same ranks under two grids:
the encoder under dp alone, the language model under cp and dp.

    python train.py emoji.samples                         one process
    mpirun -n 4 --oversubscribe python train.py emoji.samples         CPU
    torchrun --nproc-per-node 2 train.py emoji.samples                GPUs

The loss curve is the same for every number of ranks. Two bridges do it: one places image rows into
each rank's shard of the token sequence, and one gathers keys and values over cp. With --experts 8 the
blocks of the language model have 8 experts each, which lie on different ranks, and a dispatch.
--micro-batches 4 cuts a step into 4 forwards and backwards. With --overlap as well, the forward of one runs
beside the backward of the one before, which hides the exchanges of experts, and changes no bit.
"""
import argparse
import functools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import mimo_bridge as mb
from emoji import END, PATCH, Emoji
from experts import Experts, Places

HIDDEN, HEADS, LAYERS = 64, 4, 2
BLOCKS = 32  # thread blocks of what runs at the same time on a GPU, each


def start():
    """The device and the communicator: CUDA under torchrun, otherwise the CPU."""
    if "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl")
        return mb.default_communicator()
    torch.set_num_threads(1)
    comm = mb.default_communicator()
    if comm.size > 1:  # for the sums of gradients
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29517")
        dist.init_process_group("gloo", rank=comm.rank, world_size=comm.size)
    return comm


def end(comm):
    comm.close()
    if dist.is_initialized():
        dist.destroy_process_group()


class Encoder(nn.Sequential):
    """[n, P, 48] to [n * P, H], sample after sample."""

    def __init__(self, patches):
        super().__init__(nn.Linear(PATCH * PATCH * 3, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN))
        self.position = nn.Parameter(0.02 * torch.randn(patches, HIDDEN))

    def forward(self, images):
        return (super().forward(images) + self.position).flatten(0, 1)


class Block(nn.Module):
    def __init__(self, make_mlp):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.query, self.out = nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.key_value = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.mlp = make_mlp()

    def forward(self, x, gather, mask):
        x = self.attend(x, gather, mask)
        return x + self.mlp(self.norms[1](x))

    def attend(self, x, gather, mask):
        """x [b, S/cp, H]: this rank's tokens. They look at the keys and values of all S."""
        rows = self.norms[0](x)
        keys_values = gather(self.key_value(rows))  # [b, S/cp, 2H] to [b, S, 2H]
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                 for part in (self.query(rows), *keys_values.chunk(2, -1))]
        seen = scaled_dot_product_attention(*heads, attn_mask=mask)
        return x + self.out(seen.transpose(1, 2).flatten(2))

    def parts(self, gather, mask):
        """What forward does with experts, cut for mb.Overlap. x goes around them."""
        def pre(_batch, x):
            x = self.attend(x, gather, mask)
            return x, *self.mlp.choose(self.norms[1](x))

        return {"pre": pre, "dispatch": lambda _batch, x, *chosen: (x, *self.mlp.send(*chosen)),
                "mlp": lambda _batch, x, *rows: (x, *self.mlp.run(*rows)),
                "combine": lambda _batch, x, *out: (x, self.mlp.combine(*out)),
                "behind": lambda _batch, x, y: x + y.view_as(x)}


def mlp():
    return nn.Sequential(nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))


class Language(nn.Module):
    def __init__(self, seq, make_mlp):
        super().__init__()
        self.words, self.position = nn.Embedding(256, HIDDEN), nn.Embedding(seq, HIDDEN)
        self.blocks = nn.ModuleList(Block(make_mlp) for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, 256)

    def forward(self, ids, place, gather, index):
        """ids [b, S/cp], index [S/cp]: this rank's tokens, and where they stand in the sequence."""
        x, mask = self.embed(ids, place, index), self.mask(index)
        for block in self.blocks:
            x = block(x, gather, mask)
        return self.head(x)

    def embed(self, ids, place, index):
        return place(self.words(ids)) + self.position(index)

    def mask(self, index):
        return index[:, None] >= torch.arange(self.position.num_embeddings, device=index.device)


def sequences(captions, patches):
    """(ids, labels) [B, S]: image positions, then the caption; -100 where nothing is to be learned."""
    space = captions.new_full((len(captions), patches), END)
    ids = torch.cat([space, captions], 1)
    labels = torch.cat([space[:, 1:], captions, space[:, :1]], 1)
    labels[:, :patches - 1] = labels[:, -1] = -100
    ended = (captions == END).cumsum(1) > 1  # padding behind the first END
    labels[:, patches - 1:-1][ended] = -100
    return ids, labels


def add_up(loss, parameters):
    """Sums over ranks, never averages: each rank has its part of the one loss. An expert has seen the tokens of
    all ranks that share it, so its gradients are added over its copies alone. Gives the whole loss."""
    shared = [p for p in parameters if not hasattr(p, "copies")]
    flat = torch.cat([loss.detach()[None], *(p.grad.flatten() for p in shared)])
    dist.all_reduce(flat)
    loss, *sums = flat.split([1, *(p.numel() for p in shared)])
    for parameter, total in zip(shared, sums):
        parameter.grad.copy_(total.view_as(parameter))
    for parameter in parameters:
        if getattr(parameter, "copies", None):
            dist.all_reduce(parameter.grad, group=parameter.copies)
    return loss


class Captioner(nn.Module):
    """The encoder and the language model on this rank's parts of micro-batches of `size` samples."""

    def __init__(self, options, comm, emoji):
        super().__init__()
        cp = 2 if comm.size % 2 == 0 else 1
        encoder_grid = mb.Grid(options.encoder or f"dp={comm.size}")
        llm_grid = mb.Grid(options.llm or f"cp={cp},dp={comm.size // cp}")
        if encoder_grid.dim("dp") != comm.size or llm_grid.dim("dp") * llm_grid.dim("cp") != comm.size:
            raise SystemExit("the encoder takes a grid of dp alone, the language model one of cp and dp")
        if options.batch % options.micro_batches:
            raise SystemExit(f"{options.micro_batches} micro-batches do not divide a batch of {options.batch}")
        size, self.emoji, self.device, cut = options.batch // options.micro_batches, emoji, comm.device, mb.Partition()
        seq = emoji.patches + emoji.captions.shape[1]
        # Beside exchanges of experts nobody takes all multiprocessors of a GPU.
        ctas = {"ctas": BLOCKS} if options.overlap else {}
        self.place = mb.Bridge(encoder_grid, llm_grid, partition=cut, layout="bh", dst_layout="bsh", **ctas)
        self.place.update(mb.Batch(batch=size, spans=[
            mb.Span(sample, 0, 0, emoji.patches) for sample in range(size)]))
        self.gather = mb.Bridge(llm_grid, llm_grid, src_partition=cut, layout="bsh", batch=size, **ctas)
        self.encodes, self.reads = (slice(first, first + count) for first, count in (
            self.place.samples("src", size), self.place.samples("dst", size)))
        self.own = cut.at(llm_grid, comm.rank).index(seq)
        self.index = self.own.to(comm.device)

        make_mlp = mlp
        if options.experts:
            tokens = -(-size // llm_grid.dim("dp")) * len(self.own)
            places = Places(comm, options.experts, HIDDEN, max_tokens=tokens, **ctas)
            make_mlp = functools.partial(Experts, places, 2 * HIDDEN)
        torch.manual_seed(1)
        self.encoder, self.language = Encoder(emoji.patches), Language(seq, make_mlp)
        self.to(comm.device)
        self.overlap = None
        if options.overlap:
            mask = self.language.mask(self.index)
            layers = [block.parts(self.gather, mask) for block in self.language.blocks]
            self.overlap = mb.Overlap(self.embed, layers, self.lose, dispatch=places.dispatch,
                                      micro_batches=options.micro_batches, lanes={"compute": BLOCKS})

    def cut(self, batch, tokens):
        """This rank's part of a micro-batch: the images that it encodes, the tokens that it reads, and their part of
        the loss, which is a mean over N tokens of all ranks and micro-batches."""
        ids, labels = sequences(self.emoji.captions[batch], self.emoji.patches)
        return (self.emoji.images[batch[self.encodes]].to(self.device),
                ids[self.reads][:, self.own].to(self.device), labels[self.reads][:, self.own].to(self.device), tokens)

    def embed(self, batch):
        rows = self.encoder(batch[0])
        return self.language.embed(batch[1], lambda text: self.place.place(text, rows), self.index)

    def lose(self, batch, x):
        logits = self.language.head(x)
        return cross_entropy(logits.flatten(0, 1), batch[2].flatten(), reduction="sum") / batch[3]

    def forward(self, batch):
        x, mask = self.embed(batch), self.language.mask(self.index)
        for block in self.language.blocks:
            x = block(x, self.gather, mask)
        return self.lose(batch, x)

    def step(self, batches):
        """The loss of this rank's parts. Gradients are added up."""
        if self.overlap:
            return sum(loss for loss, in self.overlap(batches))
        losses = []
        for batch in batches:
            losses.append(self(batch))
            losses[-1].backward()
        return sum(loss.detach() for loss in losses)


def read_options(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", help="file made by captioner --prepare")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="samples of a step, over all ranks")
    parser.add_argument("--micro-batches", type=int, default=1, help="forwards and backwards of a step")
    parser.add_argument("--encoder", help="grid of the encoder (default: all ranks along dp)")
    parser.add_argument("--llm", help="grid of the language model (default: cp=2 where it fits)")
    parser.add_argument("--experts", type=int, help="of each block, in place of its MLP (default: none)")
    parser.add_argument("--overlap", action="store_true", help="exchanges of experts beside another micro-batch")
    options = parser.parse_args(words)
    if options.overlap and not options.experts:
        parser.error("--overlap hides exchanges of --experts")
    return options


def train(options, comm):
    """Steps, as (the model, the loss of all ranks) behind each."""
    emoji = Emoji(options.samples)
    model = Captioner(options, comm, emoji)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=2e-3)
    for _, batch in zip(range(options.steps), emoji.batches(options.batch)):
        # N, over all ranks and micro-batches: every rank has the names.
        tokens = int((sequences(emoji.captions[batch], emoji.patches)[1] != -100).sum())
        optimizer.zero_grad()
        loss = model.step([model.cut(part, tokens) for part in batch.chunk(options.micro_batches)])
        if comm.size > 1:
            loss = add_up(loss, parameters)
        optimizer.step()
        yield model, loss


def main():
    options = read_options()
    comm = start()
    for step, (_, loss) in enumerate(train(options, comm)):
        if comm.rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    end(comm)


if __name__ == "__main__":
    main()
