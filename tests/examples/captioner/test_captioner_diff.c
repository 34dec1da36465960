/* Where two logs, or two safetensors files, begin to differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "captioner/diff/diff_files.h"
#include "train/formats/safetensors.h"
#include "core/check.h"
#include "expect_failure.h"

/* ------------------------------------------- logs --------------------------------------------- */

/* Logs as write_log reads them: ' stands for ", and #4 for the hash "0000000000000004". The first
 * line of a run, then a line for each step. */
#define TENSORS_OF(grids, batches, params, last)                             \
    "{'first_step':1,'micro_batches':" #batches ",'grids':{" grids "},"      \
    "'params':#" #params ",'tensors':{"                                      \
    "'e.w':{'module':'encoder','shape':[4,2],'rule':'sharded','params':#1}," \
    "'e.s':{'module':'encoder','shape':[4],'rule':'frozen','params':#2},"    \
    "'l.n':{" last ",'shape':[2],'params':#3}}}\n"
#define START_OF(grids, batches, params) \
    TENSORS_OF(grids, batches, params, "'module':'llm','rule':'partial'")
#define START_WITH_EXPERTS(grid) \
    TENSORS_OF("'llm':'tp=4','experts':'" grid "'", 2, 9, "'module':'experts','rule':'partial'")
#define ONE_RANK "'encoder':'tp=1,dp=1','llm':'tp=1,cp=1,dp=1'"
#define START START_OF(ONE_RANK, 2, 9)
#define START_ON_8 START_OF("'encoder':'tp=2,dp=4','llm':'tp=2,cp=2,dp=2'", 2, 9)
#define FIXED(order) \
    "{'first_step':1,'micro_batches':1,'grids':{},'same_bits':'" order "','params':#9}\n"
#define RESUMED(params) "{'first_step':3,'micro_batches':1,'grids':{},'params':#" #params "}\n"
#define ORDER(order) "{'first_step':1,'micro_batches':1,'grids':{},'same_bits':'" order "'}\n"
/* A step without hashes, with those of everything, and with those of values and gradients of e.w
 * and of l.n. */
#define STEP_OF(step, loss, norm, ms) \
    "{'step':" #step ",'loss':" loss ",'tokens':7,'grad_norm':" norm ",'ms':" #ms
#define PLAIN(step, loss, norm) STEP_OF(step, loss, norm, 5) "}\n"
#define WHOLE(step, loss, norm, grads, params) \
    STEP_OF(step, loss, norm, 5) ",'params':#" #params ",'grads':#" #grads "}\n"
#define TENSORS(step, loss, norm, all, e, l) \
    STEP_OF(step, loss, norm, 5)             \
    ",'params':#" #all ",'grads':#" #all ",'tensors':{'e.w':" e ",'e.s':[#2,null],'l.n':" l "}}\n"
#define STEP_1 TENSORS(1, "5.5", "0.1", 4, "[#5,#6]", "[#7,#8]")
#define STEP_2 TENSORS(2, "5.25", "0.1", 5, "[#6,#6]", "[#8,#8]")

#define ALONE "no other gradient differs: look at the sums of this one\n"
#define EQUAL_PARTS                                                                         \
    "both runs add equally many parts here: look at what reaches this tensor, the sums of " \
    "other layers over tp and cp\n"

#define NO_HASHES                                                                  \
    "gradients and parameters were not compared: give both runs --log-hashes, or " \
    "--log-hashes=tensors, which names the tensor\n"
#define NO_TENSORS "single tensors were not compared: give both runs --log-hashes=tensors\n"

typedef struct log_case {
    const char *name, *a, *b;
    bool equal;
    /* What is printed after the two paths. Of the six lines about a step that differs, those that
     * say "equal" are left out here. */
    const char *text;
} log_case;

static const log_case logs[] = {
    {"equal", START STEP_1 STEP_2, START STEP_1 STEP_2, true,
     "equal: steps 1 to 2 (2): tokens, loss, norm, gradients, parameters of 3 tensors\n"},
    {"the time of a step is not compared", STEP_OF(1, "2", "1", 4) "}\n",
     STEP_OF(1, "2", "1", 5) "}\n", true,
     "equal: steps 1 to 1 (1): tokens, loss, norm\n" NO_HASHES},
    {"null is equal to null", PLAIN(1, "null", "null"), PLAIN(1, "null", "null"), true,
     "equal: steps 1 to 1 (1): tokens, loss, norm\n" NO_HASHES},
    {"null is no number", WHOLE(1, "null", "1", 1, 2), WHOLE(1, "1.5", "1", 1, 2), false,
     "step 1 differs, first: loss\n"
     "  start      not compared\n"
     "  loss       not finite and 1.5 (bits 3ff8000000000000)\n"
     "it may begin earlier: not all before it was compared\n" NO_TENSORS},
    {"the start", START STEP_1, START_OF(ONE_RANK, 2, 8) STEP_1, false,
     "step 1 differs, first: start\n"
     "  start      differ\n"
     "the step begins with other parameters\n"},
    {"the last bit of the loss alone", START STEP_1 STEP_2,
     START STEP_1 TENSORS(2, "5.250000000000001", "0.1", 5, "[#6,#6]", "[#8,#8]"), false,
     "step 2 differs, first: loss\n"
     "  loss       5.25 (bits 4015000000000000) and 5.2500000000000009 (bits 4015000000000001)\n"
     "the forward pass differs, the sum of the losses, or a copy of parameters that is not "
     "logged\n"},
    {"the norm alone", START STEP_1,
     START TENSORS(1, "5.5", "0.10000000000000002", 4, "[#5,#6]", "[#7,#8]"), false,
     "step 1 differs, first: norm\n"
     "  norm       0.10000000000000001 (bits 3fb999999999999a) and 0.10000000000000002 (bits "
     "3fb999999999999b)\n"
     "the gradients are equal: the sum of their squares differs\n"},
    {"parameters alone", START STEP_1 STEP_2,
     START TENSORS(1, "5.5", "0.1", 4, "[#6,#6]", "[#9,#8]") STEP_2, false,
     "step 1 differs, first: parameters\n"
     "  parameters 2 of 3 tensors differ, first e.w: 0000000000000005 and 0000000000000006\n"
     "the gradients and their norm are equal: the optimizer's step differs\n"},
    {"a gradient of the encoder on one topology", START STEP_1,
     START TENSORS(1, "5.5", "0.1", 4, "[#5,#7]", "[#7,#8]"), false,
     "step 1 differs, first: gradients\n"
     "  gradients  1 of 3 tensors differ, first in backward e.w: 0000000000000006 and "
     "0000000000000007\n"
     "the losses are equal: the backward pass differs, or a sum of gradients\n"
     "the gradient of e.w (module encoder, sharded over tp):\n"
     "  parts             A     B\n"
     "  tp                1     1  not added: each rank has a slice\n"
     "  dp                1     1  added at the end of the step\n"
     "  micro-batches     2     2  added one after another\n" ALONE},
    {"all gradients, on another topology", START STEP_1,
     START_ON_8 TENSORS(1, "5.5", "0.1", 4, "[#5,#7]", "[#7,#9]"), false,
     "step 1 differs, first: gradients\n"
     "  gradients  2 of 3 tensors differ, first in backward l.n: 0000000000000008 and "
     "0000000000000009\n"
     "the losses are equal: the backward pass differs, or a sum of gradients\n"
     "the gradient of l.n (module llm, partial over tp):\n"
     "  parts             A     B\n"
     "  tp                1     2  added at the end of the step: each rank has a part\n"
     "  cp                1     2  added at the end of the step\n"
     "  dp                1     2  added at the end of the step\n"
     "  micro-batches     2     2  added one after another\n"},
    {"a factor of an expert, under another grid of experts",
     START_WITH_EXPERTS("etp=1,ep=1,edp=4") STEP_1,
     START_WITH_EXPERTS("etp=2,ep=2,edp=1") TENSORS(1, "5.5", "0.1", 4, "[#5,#6]", "[#7,#9]"),
     false,
     "step 1 differs, first: gradients\n"
     "  gradients  1 of 3 tensors differ, first in backward l.n: 0000000000000008 and "
     "0000000000000009\n"
     "the losses are equal: the backward pass differs, or a sum of gradients\n"
     "the gradient of l.n (module experts, partial over etp):\n"
     "  parts             A     B\n"
     "  etp               1     2  added at the end of the step: each rank has a part\n"
     "  ep                1     2  not added: ranks have other experts\n"
     "  edp               4     1  added at the end of the step\n"
     "  micro-batches     2     2  added one after another\n" ALONE},
    {"two gradients on one topology", START STEP_1,
     START TENSORS(1, "5.5", "0.1", 4, "[#5,#7]", "[#7,#9]"), false,
     "step 1 differs, first: gradients\n"
     "  gradients  2 of 3 tensors differ, first in backward l.n: 0000000000000008 and "
     "0000000000000009\n"
     "the losses are equal: the backward pass differs, or a sum of gradients\n"
     "the gradient of l.n (module llm, partial over tp):\n"
     "  parts             A     B\n"
     "  tp                1     1  added at the end of the step: each rank has a part\n"
     "  cp                1     1  added at the end of the step\n"
     "  dp                1     1  added at the end of the step\n"
     "  micro-batches     2     2  added one after another\n" EQUAL_PARTS},
    {"a slice of the encoder, by tp alone", START STEP_1,
     START_OF("'encoder':'tp=2,dp=1','llm':'tp=2'", 2, 9)
         TENSORS(1, "5.5", "0.1", 4, "[#5,#7]", "[#7,#8]"),
     false,
     "step 1 differs, first: gradients\n"
     "  gradients  1 of 3 tensors differ, first in backward e.w: 0000000000000006 and "
     "0000000000000007\n"
     "the losses are equal: the backward pass differs, or a sum of gradients\n"
     "the gradient of e.w (module encoder, sharded over tp):\n"
     "  parts             A     B\n"
     "  tp                1     2  not added: each rank has a slice\n"
     "  dp                1     1  added at the end of the step\n"
     "  micro-batches     2     2  added one after another\n" ALONE},
    {"gradients of logs that do not say how they are added", STEP_1,
     TENSORS(1, "5.5", "0.1", 4, "[#5,#7]", "[#7,#8]"), false,
     "step 1 differs, first: gradients\n"
     "  start      not compared\n"
     "  gradients  1 of 3 tensors differ, first in backward e.w: 0000000000000006 and "
     "0000000000000007\n"
     "it may begin earlier: not all before it was compared\n"
     "how the gradient of e.w is added is not known: no line before this step says what its run "
     "started from\n"},
    {"hashes of the whole model", WHOLE(1, "5.5", "1", 1, 2) WHOLE(2, "5.5", "1", 3, 4),
     WHOLE(1, "5.5", "1", 1, 2) WHOLE(2, "5.5", "1", 4, 4), false,
     "step 2 differs, first: gradients\n"
     "  gradients  differ\n"
     "the losses are equal: the backward pass differs, or a sum of gradients\n" NO_TENSORS},
    {"one log without hashes", PLAIN(1, "5.5", "1"), WHOLE(1, "5.5", "2", 1, 2), false,
     "step 1 differs, first: norm\n"
     "  start      not compared\n"
     "  gradients  not compared\n"
     "  norm       1 (bits 3ff0000000000000) and 2 (bits 4000000000000000)\n"
     "  parameters not compared\n"
     "it may begin earlier: not all before it was compared\n" NO_HASHES},
    {"a resumed run from where the other was",
     START STEP_1 STEP_2 TENSORS(3, "5", "0.1", 6, "[#5,#6]", "[#7,#8]"),
     RESUMED(5) TENSORS(3, "5", "0.1", 6, "[#5,#6]", "[#7,#8]"), true,
     "equal: steps 3 to 3 (1): tokens, loss, norm, gradients, parameters of 3 tensors\n"
     "A alone has steps 1 to 2 (2)\n"},
    {"a resumed run from elsewhere",
     START STEP_1 STEP_2 TENSORS(3, "5", "0.1", 6, "[#5,#6]", "[#7,#8]"),
     RESUMED(6) TENSORS(3, "4", "0.1", 6, "[#5,#6]", "[#7,#8]"), false,
     "step 3 differs, first: start\n"
     "  start      differ\n"
     "  loss       5 (bits 4014000000000000) and 4 (bits 4010000000000000)\n"
     "the step begins with other parameters\n"
     "A alone has steps 1 to 2 (2)\n"},
    {"two that should have the same bits", FIXED("8,4") WHOLE(1, "5", "1", 1, 2),
     FIXED("8,4") WHOLE(1, "5", "2", 1, 2), false,
     "step 1 differs, first: norm\n"
     "  norm       1 (bits 3ff0000000000000) and 2 (bits 4000000000000000)\n"
     "the gradients are equal: the sum of their squares differs\n"
     "both add in the same order (--same-bits=8,4): with equal options this is a bug\n" NO_TENSORS},
    {"two in other orders", FIXED("8,4") WHOLE(1, "5", "1", 1, 2),
     FIXED("8,1") WHOLE(1, "5", "2", 1, 2), false,
     "step 1 differs, first: norm\n"
     "  norm       1 (bits 3ff0000000000000) and 2 (bits 4000000000000000)\n"
     "the gradients are equal: the sum of their squares differs\n"
     "the runs add in other orders (--same-bits: 8,4 and 8,1), so they differ\n" NO_TENSORS},
    {"two in other orders, without hashes", ORDER("8,4") PLAIN(1, "5", "1"),
     ORDER("8,1") PLAIN(1, "5", "2"), false,
     "step 1 differs, first: norm\n"
     "  start      not compared\n"
     "  gradients  not compared\n"
     "  norm       1 (bits 3ff0000000000000) and 2 (bits 4000000000000000)\n"
     "  parameters not compared\n"
     "it may begin earlier: not all before it was compared\n"
     "the runs add in other orders (--same-bits: 8,4 and 8,1), so they differ\n" NO_HASHES},
    {"one that goes on, and one that is cut short", START STEP_1 STEP_2,
     START STEP_1 "{'step':2,'loss':5.2", true,
     "equal: steps 1 to 1 (1): tokens, loss, norm, gradients, parameters of 3 tensors\n"
     "A alone has steps 2 to 2 (1)\n"
     "the last line of B is cut short and was left out\n"},
};

static const struct {
    const char *a, *b, *part; /* of the sentence */
} refused_logs[] = {
    {PLAIN(1, "1", "1"), PLAIN(2, "1", "1"),
     " have no step in common: steps 1 to 1 (1) and steps 2 to 2 (1)"},
    {"{'step':1,", PLAIN(2, "1", "1"), " have no step in common: none and steps 2 to 2 (1)"},
    {PLAIN(2, "1", "1") PLAIN(2, "1", "1"), PLAIN(2, "1", "1"),
     " is step 2 after step 2: the steps of a log must ascend"},
    {PLAIN(1, "1", "1") "\n", PLAIN(1, "1", "1") PLAIN(2, "1", "1"), "line 2 is no JSON object"},
    {"{'step':1\n", PLAIN(1, "1", "1"), "line 1 is no JSON object"},
    {"{'a':1}\n", PLAIN(1, "1", "1"), "line 1 has no whole number \"step\""},
    {"{'step':1.5}\n", PLAIN(1, "1", "1"), "line 1 has no whole number \"step\""},
    {PLAIN(1, "'1'", "1"), PLAIN(1, "1", "1"), "line 1 has no number or null \"loss\""},
    {"{'step':1,'loss':1,'tokens':1,'grad_norm':1,'params':'12'}\n", PLAIN(1, "1", "1"),
     "has \"params\" that is no hash of 16 digits"},
    {"{'step':1,'loss':1,'tokens':1,'grad_norm':1,'grads':'0123456789abcdefg'}\n",
     PLAIN(1, "1", "1"), "has \"grads\" that is no hash of 16 digits"},
    {TENSORS(1, "1", "1", 1, "[1,2]", "[#1,#2]"), PLAIN(1, "1", "1"),
     "a tensor \"e.w\" that is not as the captioner writes it"},
    {"{'step':1,'loss':1,'tokens':1,'grad_norm':1,'tensors':[]}\n", PLAIN(1, "1", "1"),
     "has \"tensors\" that are no object"},
    {"{'first_step':1,'micro_batches':1,'tensors':{'a':{}}}\n", PLAIN(1, "1", "1"),
     "a tensor \"a\" that is not as the captioner writes it"},
    {"{'step':1,'loss':1,'tokens':1,'grad_norm':1,'tensors':{'a\\u001b[2J':[#1,#2]}}\n",
     PLAIN(1, "1", "1"), "[2J\" that is not as the captioner writes it"},
    {TENSORS_OF(ONE_RANK, 1, 9, "'module':'llm','rule':'\\n'") STEP_1, PLAIN(1, "1", "1"),
     "a tensor \"l.n\" that is not as the captioner writes it"},
    {TENSORS_OF(ONE_RANK, 1, 9, "'module':'\\u009b','rule':'partial'") STEP_1, PLAIN(1, "1", "1"),
     "a tensor \"l.n\" that is not as the captioner writes it"},
    {START_OF("'llm':'tp=1\\r'", 1, 9) STEP_1, PLAIN(1, "1", "1"),
     "has a grid that is no printable text"},
    {ORDER("8,4\\u001b") PLAIN(1, "1", "1"), PLAIN(1, "1", "1"),
     "has \"same_bits\" that is no printable text"},
    {STEP_1, STEP_OF(1, "5.5", "0.1", 5) ",'params':#4,'grads':#4,'tensors':{'e.w':[#5,#6]}}\n",
     "number 1 is e.s in the one and none in the other"},
    {"{'first_step':1,'micro_batches':1,'params':#1,'tensors':{'a':{'module':'m',"
     "'rule':'r','shape':[2,3],'params':#1}}}\n" PLAIN(1, "1", "1"),
     "{'first_step':1,'micro_batches':1,'params':#1,'tensors':{'a':{'module':'m',"
     "'rule':'r','shape':[3,2],'params':#1}}}\n" PLAIN(1, "1", "1"),
     "tensor a has another shape in "},
    {"step 1\n", PLAIN(1, "1", "1"), " is neither a log of the captioner nor a safetensors file"},
    {"", PLAIN(1, "1", "1"), " is neither a log of the captioner nor a safetensors file"},
};

static void write_log(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file);
    for (; *text; text++)
        if (*text == '#')
            fprintf(file, "\"000000000000000%c\"", *++text);
        else
            fputc(*text == '\'' ? '"' : *text, file);
    cr_assert_eq(fclose(file), 0);
}

static char path_a[] = "/tmp/mimo-diff-a-XXXXXX", path_b[] = "/tmp/mimo-diff-b-XXXXXX";

static void make_paths(void)
{
    close(mkstemp(path_a));
    close(mkstemp(path_b));
}

static void remove_paths(void)
{
    unlink(path_a);
    unlink(path_b);
}

/* What diff_files prints, without the two lines of paths. The caller frees *text. */
static mimo_status compare(bool *equal, char **text)
{
    size_t size = 0;
    char paths[128];
    *text = NULL;
    FILE *out = open_memstream(text, &size);
    mimo_status status = diff_files(equal, out, path_a, path_b);
    fclose(out);
    if (status != MIMO_OK) {
        cr_assert_eq(size, 0, "a failed comparison printed %s", *text);
        return status;
    }
    int length = snprintf(paths, sizeof paths, "A: %s\nB: %s\n", path_a, path_b);
    cr_assert(strncmp(*text, paths, (size_t)length) == 0, "%s", *text);
    memmove(*text, *text + length, size - (size_t)length + 1);
    return MIMO_OK;
}

TestSuite(diff_logs, .init = make_paths, .fini = remove_paths);
TestSuite(diff_saved, .init = make_paths, .fini = remove_paths);

/* The text of a case, with the lines that it leaves out. */
static void print_expected(FILE *out, const char *text)
{
    static const char *const parts[] = {"start",     "tokens", "loss",
                                        "gradients", "norm",   "parameters"};
    bool differs = strncmp(text, "step ", 5) == 0;
    const char *rest = differs ? strchr(text, '\n') + 1 : text;
    fwrite(text, 1, (size_t)(rest - text), out);
    for (size_t i = 0; differs && i < sizeof parts / sizeof *parts; i++) {
        char begin[16];
        int length = snprintf(begin, sizeof begin, "  %-10s ", parts[i]);
        if (strncmp(rest, begin, (size_t)length) != 0) {
            fprintf(out, "%sequal\n", begin);
            continue;
        }
        const char *end = strchr(rest, '\n') + 1;
        fwrite(rest, 1, (size_t)(end - rest), out);
        rest = end;
    }
    fputs(rest, out);
}

Test(diff_logs, goldens)
{
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        char *text, expected[2048];
        FILE *out = fmemopen(expected, sizeof expected, "w");
        print_expected(out, logs[i].text);
        cr_assert_eq(fclose(out), 0);
        bool equal = !logs[i].equal;
        write_log(path_a, logs[i].a);
        write_log(path_b, logs[i].b);
        cr_assert_eq(compare(&equal, &text), MIMO_OK, "%s: %s", logs[i].name, mimo_last_error());
        cr_expect_str_eq(text, expected, "%s: %s", logs[i].name, text);
        cr_expect_eq(equal, logs[i].equal, "%s", logs[i].name);
        free(text);
    }
}

Test(diff_logs, each_refusal_has_its_sentence)
{
    for (size_t i = 0; i < sizeof refused_logs / sizeof *refused_logs; i++) {
        const char *part = refused_logs[i].part;
        for (int swapped = 0; swapped < 2; swapped++) {
            char *text;
            bool equal;
            write_log(swapped ? path_b : path_a, refused_logs[i].a);
            write_log(swapped ? path_a : path_b, refused_logs[i].b);
            mimo_status status = compare(&equal, &text);
            cr_expect_neq(status, MIMO_OK, "case %zu", i);
            cr_expect(swapped || strstr(mimo_last_error(), part), "case %zu: %s", i,
                      mimo_last_error());
            free(text);
        }
    }
}

Test(diff_logs, files_of_two_kinds_and_none)
{
    char *text;
    bool equal;
    struct safetensors_content nothing = {0};
    safetensors_writer *writer;
    write_log(path_a, PLAIN(1, "1", "1"));
    SUCCEEDS(safetensors_create(&writer, path_b, &nothing));
    SUCCEEDS(safetensors_commit(writer));
    FAILS(compare(&equal, &text), MIMO_ERR_SHAPE, " is a training log and ");
    free(text);
    unlink(path_a);
    FAILS(compare(&equal, &text), MIMO_ERR_NOT_FOUND, "cannot open /tmp/mimo-diff-a");
    free(text);
}

/* -------------------------------------- safetensors files ------------------------------------- */

static const int64_t long_shape[] = {10000, 7}, short_shape[] = {2, 1, 2};

/* A file of one tensor with one line of metadata, of `count` elements at `data`. */
typedef struct saved_case {
    const char *name;
    mimo_dtype dtype;
    int ndim;
    const int64_t *shape;
    const char *key, *value;
} saved_case;

static void save(const char *path, const saved_case *one, const void *data)
{
    struct safetensors_tensor tensor = {one->name, one->dtype, one->ndim, one->shape};
    struct safetensors_text text = {one->key, one->value};
    struct safetensors_content content = {&tensor, 1, &text, one->key ? 1 : 0};
    safetensors_writer *writer;
    int64_t elements = 1;
    for (int i = 0; i < one->ndim; i++)
        elements *= one->shape[i];
    SUCCEEDS(safetensors_create(&writer, path, &content));
    SUCCEEDS(safetensors_write(writer, 0, 0, elements, data));
    SUCCEEDS(safetensors_commit(writer));
}

static void expect_saved(const char *wanted, bool wanted_equal)
{
    char *text;
    bool equal = !wanted_equal;
    SUCCEEDS(compare(&equal, &text));
    cr_expect_str_eq(text, wanted, "%s", text);
    cr_expect_eq(equal, wanted_equal, "%s", text);
    free(text);
}

/* More elements than are read at once. The place counts in the whole tensor. */
Test(diff_saved, the_first_element_of_a_long_tensor)
{
    enum { COUNT = 70000 };
    static float a[COUNT], b[COUNT];
    const saved_case one = {"t", MIMO_F32, 2, long_shape, "seed", "1"};
    for (int i = 0; i < COUNT; i++)
        a[i] = b[i] = (float)i;
    save(path_a, &one, a);
    save(path_b, &one, b);
    expect_saved("equal: 1 tensors, 70000 elements\n", true);
    b[65536 + 13] = 65549.5F;
    b[COUNT - 1] = 69998;
    save(path_b, &one, b);
    expect_saved("1 of 1 tensors differ\n"
                 "first tensor: t, F32 [10000, 7]\n"
                 "  first element [9364, 1]: 65549 (bits 47800680) and 65549.5 (bits 478006c0)\n"
                 "  2 of 70000 elements differ, by at most 1\n",
                 false);
}

/* Four elements; a and b, as the dtype has them. Two lines come before what is wanted. */
static void expect_element(mimo_dtype dtype, const void *a, const void *b, const char *wanted)
{
    const saved_case one = {"t", dtype, 3, short_shape, NULL, NULL};
    char text[512];
    save(path_a, &one, a);
    save(path_b, &one, b);
    snprintf(text, sizeof text, "1 of 1 tensors differ\nfirst tensor: t, %s", wanted);
    expect_saved(text, false);
}

Test(diff_saved, every_dtype)
{
    const uint16_t bf16_a[] = {0, 0, 0x3f80, 0}, bf16_b[] = {0, 0, 0x3f81, 0x8000};
    expect_element(MIMO_BF16, bf16_a, bf16_b,
                   "BF16 [2, 1, 2]\n"
                   "  first element [1, 0, 0]: 1 (bits 3f80) and 1.0078125 (bits 3f81)\n"
                   "  2 of 4 elements differ, by at most 0.0078125\n");
    const uint16_t f16_a[] = {0, 0x3c00, 0, 0}, f16_b[] = {0, 0x3c01, 0, 0x7c00};
    expect_element(MIMO_F16, f16_a, f16_b,
                   "F16 [2, 1, 2]\n"
                   "  first element [0, 0, 1]: 1 (bits 3c00) and 1.00097656 (bits 3c01)\n"
                   "  2 of 4 elements differ, by at most 0.0009765625; some are not finite\n");
    const double f64_a[] = {0, 0, 0, 0.1}, f64_b[] = {0, 0, 0, 0.10000000000000002};
    expect_element(MIMO_F64, f64_a, f64_b,
                   "F64 [2, 1, 2]\n"
                   "  first element [1, 0, 1]: 0.10000000000000001 (bits 3fb999999999999a) and "
                   "0.10000000000000002 (bits 3fb999999999999b)\n"
                   "  1 of 4 elements differ, by at most 1.38777878e-17\n");
    const int32_t i32_a[] = {0, 0, -1, 0}, i32_b[] = {0, 0, 2, 0};
    expect_element(MIMO_I32, i32_a, i32_b,
                   "I32 [2, 1, 2]\n"
                   "  first element [1, 0, 0]: -1 (bits ffffffff) and 2 (bits 00000002)\n"
                   "  1 of 4 elements differ, by at most 3\n");
    const int64_t i64_a[] = {9007199254740993, 0, 0, 0}, i64_b[] = {9007199254740995, 0, 0, 0};
    expect_element(MIMO_I64, i64_a, i64_b,
                   "I64 [2, 1, 2]\n"
                   "  first element [0, 0, 0]: 9007199254740993 (bits 0020000000000001) and "
                   "9007199254740995 (bits 0020000000000003)\n"
                   "  1 of 4 elements differ, by at most 2\n");
    const uint8_t f8_a[] = {0, 0, 0, 1}, f8_b[] = {0, 0, 0, 0xff};
    expect_element(MIMO_F8, f8_a, f8_b,
                   "F8_E4M3 [2, 1, 2]\n"
                   "  first element [1, 0, 1]: bits 01 and bits ff\n"
                   "  1 of 4 elements differ\n");
}

Test(diff_saved, bits_and_not_values)
{
    const float a[] = {0, (float)NAN, 1, 2}, minus_zero[] = {-0.0F, (float)NAN, 1, 2};
    const float number[] = {0, 3, 1, 2};
    expect_element(MIMO_F32, a, minus_zero,
                   "F32 [2, 1, 2]\n"
                   "  first element [0, 0, 0]: 0 (bits 00000000) and -0 (bits 80000000)\n"
                   "  1 of 4 elements differ, by at most 0\n");
    expect_element(MIMO_F32, a, number,
                   "F32 [2, 1, 2]\n"
                   "  first element [0, 0, 1]: nan (bits 7fc00000) and 3 (bits 40400000)\n"
                   "  1 of 4 elements differ, by at most 0; some are not finite\n");
}

Test(diff_saved, metadata)
{
    const float data[] = {1, 2, 3, 4};
    const saved_case eight = {"t", MIMO_F32, 3, short_shape, "lora_alpha", "8"};
    const saved_case other = {"t", MIMO_F32, 3, short_shape, "lora_alpha", "16"};
    const saved_case none = {"t", MIMO_F32, 3, short_shape, NULL, NULL};
    save(path_a, &eight, data);
    save(path_b, &other, data);
    expect_saved(
        "metadata lora_alpha: 8 in A, 16 in B\nthe tensors are equal: 1 tensors, 4 elements\n",
        false);
    save(path_a, &none, data);
    expect_saved(
        "metadata lora_alpha: 16 in B alone\nthe tensors are equal: 1 tensors, 4 elements\n",
        false);
}

/* No writer here makes such a file; others may. */
static void save_header(const char *path, const char *header)
{
    const uint32_t length[2] = {(uint32_t)strlen(header), 0};
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(length, sizeof length, 1, file) == 1 && fputs(header, file) >= 0 &&
                  fclose(file) == 0,
              "%s", path);
}

Test(diff_saved, metadata_that_no_terminal_should_get)
{
    save_header(path_a, "{\"__metadata__\":{\"a\\u001b[2J\":\"8\\nequal: 1\"}}");
    save_header(path_b, "{\"__metadata__\":{\"a\\u001b[2J\":\"9\",\"b\":\"\\u009b1m\"}}");
    expect_saved("metadata a\\x1b[2J: 8\\nequal: 1 in A, 9 in B\n"
                 "metadata b: \\xc2\\x9b1m in B alone\n"
                 "the tensors are equal: 0 tensors, 0 elements\n",
                 false);
}

/* Takes a second. Where each key is looked for among all others, minutes. */
Test(diff_saved, many_metadata, .timeout = 30)
{
    enum { MANY = 100000, ROOM = 16 };
    static const float data[4];
    static char keys[MANY][ROOM], values[MANY][ROOM];
    static struct safetensors_text metadata[MANY];
    const struct safetensors_tensor tensor = {"t", MIMO_F32, 3, short_shape};
    const struct safetensors_content content = {&tensor, 1, metadata, MANY};
    for (int side = 0; side < 2; side++) {
        safetensors_writer *writer;
        for (int i = 0; i < MANY; i++) {
            snprintf(keys[i], ROOM, "key %d", i);
            snprintf(values[i], ROOM, "%d", side == 1 && i == 777 ? -1 : i);
            metadata[i] = (struct safetensors_text){keys[i], values[i]};
        }
        SUCCEEDS(safetensors_create(&writer, side ? path_b : path_a, &content));
        SUCCEEDS(safetensors_write(writer, 0, 0, 4, data));
        SUCCEEDS(safetensors_commit(writer));
    }
    expect_saved(
        "metadata key 777: 777 in A, -1 in B\nthe tensors are equal: 1 tensors, 4 elements\n",
        false);
}

Test(diff_saved, what_cannot_be_compared)
{
    static const int64_t other_shape[] = {1, 2, 2};
    const float data[] = {1, 2, 3, 4};
    const saved_case first = {"t", MIMO_F32, 3, short_shape, "step", "20"};
    static const struct {
        saved_case other;
        const char *part;
    } cases[] = {
        {{"t", MIMO_F32, 3, short_shape, "step", "21"}, " is of step 20 and "},
        {{"u", MIMO_F32, 3, short_shape, "step", "20"}, " has no tensor t, which "},
        {{"t", MIMO_F32, 3, other_shape, "step", "20"}, "tensor t is F32 [2, 1, 2] in "},
        {{"t", MIMO_I32, 3, short_shape, "step", "20"}, " and I32 [2, 1, 2] in "},
        {{"t", MIMO_F32, 2, other_shape, "step", "20"}, " and F32 [1, 2] in "},
    };
    save(path_a, &first, data);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        bool equal;
        save(path_b, &cases[i].other, data);
        cr_expect_eq(compare(&equal, &text), MIMO_ERR_SHAPE, "case %zu", i);
        cr_expect(strstr(mimo_last_error(), cases[i].part), "%s", mimo_last_error());
        free(text);
    }
}
