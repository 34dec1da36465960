"""mimo-plan as a user runs it: the goldens, and bad input. Usage: test_mimo_plan.py MIMO_PLAN"""

import sys

from planner import Planner

PLAN, VERSION = Planner(sys.argv[1]), sys.argv[2]
run, expect, expect_error = PLAN.run, PLAN.expect, PLAN.expect_error
expect_output, document_of = PLAN.expect_output, PLAN.document


def expect_groups(spec, offset, sets, expected):
    """The JSON groups of a grid. `sets` is the argument, `expected` is [(dims in grid order,
    ranks)]."""
    arguments = ["grid", spec, "--offset", str(offset)]
    for one in sets:
        arguments += ["--dims", one]
    groups = document_of(*arguments)["groups"]
    wanted = [{"dims": dims, "ranks": ranks} for dims, ranks in expected]
    expect(groups == wanted, arguments, f"groups {groups} instead of {wanted}")


def grid_goldens():
    expect_output('{"size":8,"offset":0,"dims":[{"name":"tp","size":2},{"name":"cp","size":2},'
                  '{"name":"pp","size":1},{"name":"dp","size":2}],"groups":['
                  '{"dims":["tp"],"ranks":[[0,1],[2,3],[4,5],[6,7]]},'
                  '{"dims":["cp","dp"],"ranks":[[0,2,4,6],[1,3,5,7]]}]}\n',
                  "grid", "tp=2,cp=2,pp=1,dp=2", "--dims", "tp", "--dims", "dp,cp", "--json")
    expect_output('{"size":1,"offset":0,"dims":[{"name":"tp","size":1}],"groups":[]}\n',
                  "grid", "--json", "tp=1")
    expect_groups("tp=2,cp=2,dp=2", 0, ["tp,cp", "dp,tp"],
                  [(["tp", "cp"], [[0, 1, 2, 3], [4, 5, 6, 7]]),
                   (["tp", "dp"], [[0, 1, 4, 5], [2, 3, 6, 7]])])
    expect_groups("tp=2,cp=1,dp=2", 4, ["dp"], [(["dp"], [[4, 6], [5, 7]])])
    expect_groups("a=1,b=3", 2147483645, ["b", "a"],
                  [(["b"], [[2147483645, 2147483646, 2147483647]]),
                   (["a"], [[2147483645], [2147483646], [2147483647]])])


def grid_text():
    expect_output("grid tp=2,gtp_remat=1,dp=2: 4 ranks, 8 to 11\n"
                  "\n"
                  "dim          size  stride\n"
                  "tp              2       1\n"
                  "gtp_remat       1       2\n"
                  "dp              2       2\n"
                  "\n"
                  "groups along tp,dp: 1 of 4 ranks\n"
                  "  0:  8  9 10 11\n"
                  "\n"
                  "groups along dp: 2 of 2 ranks\n"
                  "  0:  8 10\n"
                  "  1:  9 11\n",
                  "grid", "tp=2,gtp_remat=1,dp=2", "--offset=8", "--dims=dp,tp", "--dims=dp",
                  "--world", "12")


def large_grid():
    arguments = ["grid", "tp=8,cp=8,pp=16,dp=16", "--dims", "cp,dp"]
    groups = document_of(*arguments)["groups"][0]["ranks"]
    expect(len(groups) == 128 and sorted(sum(groups, [])) == list(range(16384)), arguments,
           f"{len(groups)} groups that do not partition 16384 ranks")


def environment():
    rows = {row["name"]: row for row in document_of("env")["environment"]}
    expect(rows["MIMO_AGREE"]["default"] == 1, ["env"], f"rows {rows}")
    expect(rows["MIMO_CHECK"]["default"] == "", ["env"], f"rows {rows}")
    expect(all(set(row) == {"name", "default", "help"} for row in rows.values()), ["env"],
           f"rows {rows}")
    _, text, _ = run("env")
    for name, row in rows.items():
        defaults = ["a list of", "a text"] if row["default"] == "" else [f"default {row['default']}"]
        expect(any(f"{name} ({default}" in text for default in defaults) and row["help"] in text, ["env"],
               f"no {name} in\n{text}")


def patterns():
    expect_output("pattern [*-]||[*E]|/*E: 4 layers, 2 items, 1 MTP parts\n"
                  "stage 0, chunk 0: 2 layers from 0, items from 0\n"
                  "  layer 0  item 0  *  decoder.layers.0.self_attention.*\n"
                  "  layer 1  item 0  -  decoder.layers.0.mlp.*\n"
                  "stage 1, chunk 0: 0 layers from 2, items from 1\n"
                  "stage 0, chunk 1: 2 layers from 2, items from 1\n"
                  "  layer 2  item 1  *  decoder.layers.1.self_attention.*\n"
                  "  layer 3  item 1  E  decoder.layers.1.mlp.*\n"
                  "stage 1, chunk 1: 0 layers from 4, items from 2\n"
                  "  final norm  decoder.final_layernorm.*\n"
                  "  MTP part 0  *E  mtp.layers.0.*\n"
                  "    layer 0  *  mtp.layers.0.mtp_model_layer.layers.0.self_attention.*\n"
                  "    layer 1  E  mtp.layers.0.mtp_model_layer.layers.1.mlp.*\n",
                  "pattern", "[*-]||[*E]|/*E", "--pp", "2")
    arguments = ["pattern", "M|M|M|/-M/-M", "--pp", "2"]
    document = document_of(*arguments)
    expect((document["mtp_stage"], document["mtp_chunk"], document["mtp_keys"]) == (1, 1, [
        f"mtp.layers.{part}.mtp_model_layer.layers.{layer}" for part in (0, 1) for layer in ("0.mlp.", "1.mixer.")]),
        arguments, document)
    arguments = ["pattern", "M*-"]
    document = document_of(*arguments)
    keys = [layer["key"] for segment in document["segments"] for layer in segment["layers"]]
    expect(keys == ["decoder.layers.0.mixer.", "decoder.layers.1.self_attention.",
                    "decoder.layers.2.mlp."], arguments, keys)
    expect("mtp_stage" not in document, arguments, document)
    expect(document["final_norm"] == "decoder.final_norm.", arguments, document["final_norm"])
    expect_error(["pattern, column 2: '[' is not closed"], "pattern", "M[M*")
    expect_error(["pattern: 3 segments over pp=2"], "pattern", "*|*|*", "--pp", "2")
    expect_error(["a pattern such as"], "pattern", "--json")
    expect_error(["'*'", "'-'"], "pattern", "*", "-")
    expect_error(["--pp must be at least 1, not 0"], "pattern", "*", "--pp", "0")


def help_and_version():
    for arguments in (["--help"], ["grid", "--help"], ["env", "--help"], ["grid", "--usage"]):
        status, out, err = run(*arguments)
        expect(status == 0 and err == "" and out.startswith("Usage: mimo-plan"), arguments,
               f"status {status}, stdout {out!r}, stderr {err!r}")
    status, out, _ = run("--version")
    expect(status == 0 and out == f"mimo-plan {VERSION}\n", ["--version"], out)
    _, out, _ = run("grid", "--help")
    expect("--dims" in out and "Usage: mimo-plan grid" in out, ["grid", "--help"], out)


def bad_usage():
    expect_error(["command is missing"])
    expect_error(["'gird'"], "gird", "tp=2")
    expect_error(['unknown flag "--loud"'], "--loud")
    expect_error(['unknown flag "--loud"'], "grid", "tp=2", "--loud")
    expect_error(['unknown flag "--loud=3"'], "grid", "tp=2", "--loud=3")
    expect_error(['unknown flag "-x"'], "grid", "tp=2", "-x")
    expect_error(["--dims needs a value, SET"], "grid", "tp=2", "--dims")
    expect_error(["--json takes no value"], "grid", "tp=2", "--json=1")
    expect_error(["grid such as"], "grid", "--json")
    expect_error(["'tp=2'", "'dp=2'"], "grid", "tp=2", "dp=2")
    expect_error(['--offset needs a whole number, not "x"'], "grid", "tp=2", "--offset", "x")
    expect_error(['--offset needs a whole number, not ""'], "grid", "tp=2", "--offset", "")
    expect_error(["--offset must be at least 0, not -4"], "grid", "tp=2", "--offset", "-4")
    expect_error(["--offset must be from 0 to 9223372036854775807, not 99999999999999999999"], "grid", "tp=2",
                 "--offset", "99999999999999999999")
    expect_error(['"more" is no flag: see --help'], "env", "more")


def bad_grids():
    expect_error(["part 2", "'dp'"], "grid", "tp=2,dp")
    expect_error(["''"], "grid", "")
    expect_error(["'tp'", "size 0"], "grid", "tp=0")
    expect_error(["both named 'tp'"], "grid", "tp=2,tp=2")
    expect_error(["does not fit 64 bits"], "grid", "a=9223372036854775807,b=2")
    expect_error(["past the last rank 2147483647"], "grid", "a=2", "--offset", "2147483647")
    expect_error(["needs 12 ranks", "are 11"], "grid", "tp=8", "--offset", "4", "--world", "11")
    expect_error(["'ep'"], "grid", "tp=2", "--dims", "ep")
    expect_error(["'tp' twice"], "grid", "tp=2", "--dims", "tp,tp")
    expect_error(["is empty"], "grid", "tp=2", "--dims", "")
    # An error in the second set leaves the first unprinted.
    expect_error(["'ep'"], "grid", "tp=2", "--dims", "tp", "--dims", "ep", "--json")


def full_disk():
    for arguments in (["env"], ["--help"]):
        PLAN.full_disk(*arguments)


PLAN.end(grid_goldens, grid_text, large_grid, environment, patterns, help_and_version, bad_usage, bad_grids,
         full_disk)
