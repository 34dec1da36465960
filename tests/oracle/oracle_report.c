#include "oracle_report.h"

#include <math.h>
#include <string.h>

#include "mutations.h"

enum { LAYER_NAME = 64 };

oracle_phase oracle_report_first(const oracle_report *report)
{
    if (report->failed_ranks > 0)
        return PHASE_RUN;
    for (int c = 0; c < report->count; c++)
        if (report->list[c].unknown_count > 0)
            return PHASE_RUN;
    for (int phase = 0; phase < ORACLE_PHASES; phase++)
        if (comparison_summary(report->list, report->count, (oracle_phase)phase).failures > 0)
            return (oracle_phase)phase;
    return ORACLE_PHASES;
}

/* -------------------------------------------- text ------------------------------------------- */

static void print_head(const oracle_report *report, FILE *stream)
{
    const oracle_options *options = report->options;
    fprintf(stream, "mimo-oracle: encoder %s, LLM %s%s, %d ranks%s, %s executor, seed %llu",
            options->spec.encoder, options->spec.llm, options->spec.sp ? " with sp" : "",
            report->ranks, options->memory == MIMO_MEMORY_CUDA ? " on GPUs" : "",
            oracle_executor_name(options->spec.executor), (unsigned long long)options->seed);
    if (options->mutation)
        fprintf(stream, ", mutation %s", options->mutation);
    fprintf(stream, "\n");
}

static void print_run(const oracle_report *report, FILE *stream)
{
    if (report->failed_ranks > 0)
        fprintf(stream, "%-10s FAIL: an error on %d of %d ranks: %s\n", "run", report->failed_ranks,
                report->ranks, report->sentence);
    for (int c = 0; c < report->count; c++)
        if (report->list[c].unknown_count > 0)
            fprintf(stream, "%-10s FAIL: %d pieces of unknown tensors, the first '%s'\n", "run",
                    report->list[c].unknown_count, report->list[c].unknown);
}

static void print_phase(const oracle_report *report, oracle_phase phase, FILE *stream)
{
    phase_summary summary = comparison_summary(report->list, report->count, phase);
    if (summary.tensors == 0)
        return;
    fprintf(stream, "%-10s %4d %9.1e %9.1e %9.1e %9.2g  %s (%s)", oracle_phase_rows[phase].name,
            summary.tensors, summary.mean, summary.worst, summary.limit,
            summary.limit / summary.worst, summary.worst_tensor->name, summary.worst_case->what);
    if (summary.failures > 0)
        fprintf(stream, "  FAIL: %d of %d", summary.failures, summary.tensors);
    if (summary.worst_tensor->fault[0])
        fprintf(stream, ", %s", summary.worst_tensor->fault);
    fprintf(stream, "\n");
}

static const char *const modules[] = {"encoder", "llm"};
enum { MODULES = 2 };

static void print_modules(const oracle_comparison *comparison, FILE *stream)
{
    for (int i = 0; i < MODULES; i++) {
        module_effect effect = comparison_module(comparison, modules[i]);
        fprintf(stream, "  all gradients of the %s: %.4g times the reference, error %.3g\n",
                modules[i], effect.ratio, effect.error);
    }
}

static void print_verdict(const oracle_report *report, FILE *stream)
{
    oracle_phase first = oracle_report_first(report);
    if (report->options->mutation && !report->mutation_reached)
        fprintf(stream, "the mutated code was never run: the topology does not use it\n");
    if (first == ORACLE_PHASES)
        fprintf(stream, "PASS: every phase");
    else if (first == PHASE_RUN)
        fprintf(stream, "FAIL: first in phase 'run'");
    else {
        phase_summary summary = comparison_summary(report->list, report->count, first);
        fprintf(stream, "FAIL: first in phase '%s', %.3g times its limit",
                oracle_phase_rows[first].name, summary.worst / summary.limit);
    }
    fprintf(stream, "; full log: %s\n", report->options->log);
}

static void print_text(const oracle_report *report, FILE *stream)
{
    print_head(report, stream);
    if (report->failed_ranks == 0)
        fprintf(stream, "%-10s %4s %9s %9s %9s %9s  %s\n", "phase", "n", "mean", "worst", "limit",
                "margin", "worst tensor");
    print_run(report, stream);
    for (int phase = 0; phase < ORACLE_PHASES; phase++)
        print_phase(report, (oracle_phase)phase, stream);
    print_verdict(report, stream);
}

/* --------------------------------------------- log ------------------------------------------- */

/* The length of the layer's part of a tensor's name, which is two words: "llm.block0" of
 * "llm.block0.mlp.up.bias". */
static size_t layer_length(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? (size_t)(dot - name) + 1 + strcspn(dot + 1, ".") : strlen(name);
}

static bool same_layer(const checked_tensor *a, const checked_tensor *b)
{
    size_t length = layer_length(a->name);
    return a->phase == b->phase && length == layer_length(b->name) &&
           strncmp(a->name, b->name, length) == 0;
}

/* The mean and the worst over the layer of tensor i, printed after the layer's last tensor. */
static void print_layer(const oracle_comparison *comparison, int i, FILE *stream)
{
    const checked_tensor *tensor = &comparison->list[i];
    double mean = 0, worst = 0;
    int count = 0;
    for (int j = 0; j < comparison->count; j++) {
        if (!same_layer(tensor, &comparison->list[j]))
            continue;
        if (j > i)
            return;
        mean += comparison->list[j].error;
        worst = fmax(worst, comparison->list[j].error);
        count++;
    }
    if (count > 1)
        fprintf(stream, "    layer %.*s: %d tensors, mean %.3e, worst %.3e\n",
                (int)layer_length(tensor->name), tensor->name, count, mean / count, worst);
}

static void print_tensors(const oracle_comparison *comparison, oracle_phase phase, FILE *stream)
{
    for (int i = 0; i < comparison->count; i++) {
        const checked_tensor *tensor = &comparison->list[i];
        if (tensor->phase != phase)
            continue;
        fprintf(stream, "  %-42s [%lld, %lld] error %.3e, L2 %.6e, reference %.6e%s%s%s\n",
                tensor->name, (long long)tensor->rows, (long long)tensor->columns, tensor->error,
                tensor->got_scale, tensor->scale, comparison_fails(tensor) ? "  FAIL" : "",
                tensor->fault[0] ? ": " : "", tensor->fault);
        if (tensor->ties > 0)
            fprintf(stream, "    %lld near ties are left out\n", (long long)tensor->ties);
        if (tensor->base)
            fprintf(stream, "    moved by %.3e of that, limit %.1e\n", tensor->moved,
                    tensor->limit);
        print_layer(comparison, i, stream);
    }
}

static bool write_log(const oracle_report *report)
{
    FILE *log = fopen(report->options->log, "w");
    if (!log)
        return false;
    print_text(report, log);
    for (int c = 0; c < report->count; c++)
        for (int phase = 0; phase < ORACLE_PHASES; phase++) {
            fprintf(log, "\n%s, %s: %s\n", report->list[c].what, oracle_phase_rows[phase].name,
                    oracle_phase_rows[phase].meaning);
            print_tensors(&report->list[c], (oracle_phase)phase, log);
            if (phase == PHASE_GRADIENTS)
                print_modules(&report->list[c], log);
        }
    bool written = !ferror(log);
    return fclose(log) == 0 && written;
}

/* --------------------------------------------- JSON ------------------------------------------ */

static void print_string(const char *text, FILE *stream)
{
    fputc('"', stream);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', stream);
        fputc((unsigned char)*text < ' ' ? ' ' : *text, stream);
    }
    fputc('"', stream);
}

static void print_number(double value, FILE *stream)
{
    if (isfinite(value))
        fprintf(stream, "%.6e", value);
    else
        fputs("null", stream);
}

static void print_phase_json(const oracle_report *report, oracle_phase phase, FILE *stream)
{
    phase_summary summary = comparison_summary(report->list, report->count, phase);
    const char *fault = summary.worst_tensor ? summary.worst_tensor->fault : "";
    fprintf(stream, "{\"phase\":\"%s\",\"tensors\":%d,\"failures\":%d,\"limit\":%.6e,\"mean\":",
            oracle_phase_rows[phase].name, summary.tensors, summary.failures, summary.limit);
    print_number(summary.mean, stream);
    fputs(",\"worst\":", stream);
    print_number(summary.worst, stream);
    fputs(",\"worst_tensor\":", stream);
    print_string(summary.worst_tensor ? summary.worst_tensor->name : "", stream);
    fputs(",\"case\":", stream);
    print_string(summary.worst_case ? summary.worst_case->what : "", stream);
    fputs(",\"fault\":", stream);
    if (fault[0])
        print_string(fault, stream);
    else
        fputs("null", stream);
    fputc('}', stream);
}

/* For the last case, the one with 4 micro-batches. */
static void print_modules_json(const oracle_report *report, FILE *stream)
{
    for (int i = 0; i < MODULES && report->count > 0; i++) {
        module_effect effect = comparison_module(&report->list[report->count - 1], modules[i]);
        fprintf(stream, "%s{\"module\":\"%s\",\"gradient_ratio\":", i > 0 ? "," : "", modules[i]);
        print_number(effect.ratio, stream);
        fputs(",\"gradient_error\":", stream);
        print_number(effect.error, stream);
        fputc('}', stream);
    }
}

static void print_json(const oracle_report *report, FILE *stream)
{
    const oracle_options *options = report->options;
    oracle_phase first = oracle_report_first(report);
    fputs("{\"encoder\":", stream);
    print_string(options->spec.encoder, stream);
    fputs(",\"llm\":", stream);
    print_string(options->spec.llm, stream);
    fprintf(stream, ",\"sp\":%s,\"device\":\"%s\",\"executor\":\"%s\",\"ranks\":%d,\"seed\":%llu",
            options->spec.sp ? "true" : "false",
            options->memory == MIMO_MEMORY_CUDA ? "cuda" : "cpu",
            oracle_executor_name(options->spec.executor), report->ranks,
            (unsigned long long)options->seed);
    fputs(",\"mutation\":", stream);
    print_string(options->mutation ? options->mutation : "", stream);
    fprintf(stream, ",\"mutation_reached\":%s", report->mutation_reached ? "true" : "false");
    fprintf(stream,
            ",\"passed\":%s,\"first_failing_phase\":", first == ORACLE_PHASES ? "true" : "false");
    print_string(first == ORACLE_PHASES ? "" : oracle_phase_rows[first].name, stream);
    fprintf(stream, ",\"failed_ranks\":%d,\"sentence\":", report->failed_ranks);
    print_string(report->failed_ranks > 0 ? report->sentence : "", stream);
    fputs(",\"log\":", stream);
    print_string(options->log, stream);
    fputs(",\"modules\":[", stream);
    print_modules_json(report, stream);
    fputs("],\"phases\":[", stream);
    for (int phase = 1; phase < ORACLE_PHASES && report->failed_ranks == 0; phase++) {
        fputs(phase > 1 ? "," : "", stream);
        print_phase_json(report, (oracle_phase)phase, stream);
    }
    fputs("]}\n", stream);
}

bool oracle_report_print(const oracle_report *report, FILE *stream)
{
    if (report->options->json)
        print_json(report, stream);
    else
        print_text(report, stream);
    return fflush(stream) == 0 && write_log(report);
}
