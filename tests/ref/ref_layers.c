#include "ref_layers.h"

#include <math.h>

void ref_linear_prepare(const ref_linear *layer)
{
    for (int64_t o = 0; layer->rank > 0 && o < layer->out; o++)
        for (int64_t k = 0; k < layer->in; k++) {
            double sum = 0;
            for (int64_t r = 0; r < layer->rank; r++)
                sum += layer->b.value[o * layer->rank + r] * layer->a.value[r * layer->in + k];
            layer->effective[o * layer->in + k] =
                layer->weight.value[o * layer->in + k] + layer->scale * sum;
        }
}

void ref_linear_finish(const ref_linear *layer)
{
    const double *d = layer->weight.grad;
    for (int64_t o = 0; layer->rank > 0 && o < layer->out; o++)
        for (int64_t k = 0; k < layer->in; k++)
            for (int64_t r = 0; r < layer->rank; r++) {
                double scaled = layer->scale * d[o * layer->in + k];
                layer->a.grad[r * layer->in + k] += scaled * layer->b.value[o * layer->rank + r];
                layer->b.grad[o * layer->rank + r] += scaled * layer->a.value[r * layer->in + k];
            }
}

static const double *weight_of(const ref_linear *layer)
{
    return layer->rank > 0 ? layer->effective : layer->weight.value;
}

void ref_linear_forward(const ref_linear *layer, double *y, const double *x, int64_t rows)
{
    const double *weight = weight_of(layer);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < layer->out; o++) {
            double sum = layer->bias.value ? layer->bias.value[o] : 0;
            for (int64_t k = 0; k < layer->in; k++)
                sum += x[i * layer->in + k] * weight[o * layer->in + k];
            y[i * layer->out + o] = sum;
        }
}

void ref_linear_backward(const ref_linear *layer, double *dx, const double *dy, const double *x,
                         int64_t rows)
{
    const double *weight = weight_of(layer);
    for (int64_t i = 0; dx && i < rows * layer->in; i++)
        dx[i] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < layer->out; o++) {
            double d = dy[i * layer->out + o];
            if (layer->bias.value)
                layer->bias.grad[o] += d;
            for (int64_t k = 0; k < layer->in; k++) {
                layer->weight.grad[o * layer->in + k] += d * x[i * layer->in + k];
                if (dx)
                    dx[i * layer->in + k] += d * weight[o * layer->in + k];
            }
        }
}

typedef struct row_moments {
    double mean, rstd;
} row_moments;

static row_moments moments(const double *x, int64_t width)
{
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < width; j++)
        mean += x[j] / (double)width;
    for (int64_t j = 0; j < width; j++)
        variance += (x[j] - mean) * (x[j] - mean) / (double)width;
    return (row_moments){mean, 1 / sqrt(variance + 1e-5)};
}

void ref_norm_forward(const ref_norm *layer, double *y, const double *x, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++, x += layer->width, y += layer->width) {
        row_moments m = moments(x, layer->width);
        for (int64_t j = 0; j < layer->width; j++)
            y[j] = (x[j] - m.mean) * m.rstd * layer->scale.value[j] + layer->shift.value[j];
    }
}

void ref_norm_backward(const ref_norm *layer, double *dx, const double *dy, const double *x,
                       int64_t rows)
{
    double width = (double)layer->width;
    for (int64_t i = 0; i < rows; i++) {
        row_moments m = moments(x, layer->width);
        double mean_g = 0, mean_gz = 0; /* g: gradient of z, the normalised x */
        for (int64_t j = 0; j < layer->width; j++) {
            double z = (x[j] - m.mean) * m.rstd, g = dy[j] * layer->scale.value[j];
            layer->scale.grad[j] += dy[j] * z;
            layer->shift.grad[j] += dy[j];
            mean_g += g / width;
            mean_gz += g * z / width;
        }
        for (int64_t j = 0; j < layer->width; j++) {
            double z = (x[j] - m.mean) * m.rstd, g = dy[j] * layer->scale.value[j];
            dx[j] = m.rstd * (g - mean_g - z * mean_gz);
        }
        x += layer->width, dx += layer->width, dy += layer->width;
    }
}

static double gelu_argument(double x)
{
    return sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
}

double ref_gelu(double x)
{
    return 0.5 * x * (1 + tanh(gelu_argument(x)));
}

double ref_gelu_slope(double x)
{
    double t = tanh(gelu_argument(x));
    double inner = sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
}

/* The offset of one head's part of a projected row: part 0 queries, 1 keys, 2 values. */
static int64_t place(const ref_attention *layer, int64_t row, int64_t head, int64_t part)
{
    int64_t hidden = layer->qkv.in, dh = hidden / layer->heads;
    return row * 3 * hidden + (head * 3 + part) * dh;
}

static void attend_row(const ref_attention *layer, int64_t rows, int64_t head, int64_t i)
{
    int64_t hidden = layer->qkv.in, dh = hidden / layer->heads;
    int64_t seen = layer->causal ? i + 1 : rows;
    double *w = layer->weights + (head * rows + i) * rows, most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seen; j++) {
        w[j] = 0;
        for (int64_t e = 0; e < dh; e++)
            w[j] += layer->projected[place(layer, i, head, 0) + e] *
                    layer->projected[place(layer, j, head, 1) + e] / sqrt((double)dh);
        most = fmax(most, w[j]);
    }
    for (int64_t j = 0; j < seen; j++)
        sum += exp(w[j] - most);
    for (int64_t j = 0; j < rows; j++)
        w[j] = j < seen ? exp(w[j] - most) / sum : 0;
    for (int64_t e = 0; e < dh; e++) {
        double *to = &layer->context[i * hidden + head * dh + e];
        *to = 0;
        for (int64_t j = 0; j < seen; j++)
            *to += w[j] * layer->projected[place(layer, j, head, 2) + e];
    }
}

void ref_attention_forward(const ref_attention *layer, double *y, const double *x, int64_t rows)
{
    ref_linear_forward(&layer->qkv, layer->projected, x, rows);
    for (int64_t head = 0; head < layer->heads; head++)
        for (int64_t i = 0; i < rows; i++)
            attend_row(layer, rows, head, i);
    ref_linear_forward(&layer->out, y, layer->context, rows);
}

/* The gradient of one query's weights, then of its scores, then of their inputs. */
static void attend_row_backward(const ref_attention *layer, int64_t rows, int64_t head, int64_t i)
{
    int64_t hidden = layer->qkv.in, dh = hidden / layer->heads;
    const double *w = layer->weights + (head * rows + i) * rows, *p = layer->projected;
    const double *d_context = layer->d_context + i * hidden + head * dh;
    double *d = layer->d_projected, mean = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < rows; j++) {
            double dw = 0;
            for (int64_t e = 0; e < dh; e++)
                dw += d_context[e] * p[place(layer, j, head, 2) + e];
            if (pass == 0) {
                mean += dw * w[j];
                continue;
            }
            double score = w[j] * (dw - mean) / sqrt((double)dh);
            for (int64_t e = 0; e < dh; e++) {
                d[place(layer, i, head, 0) + e] += score * p[place(layer, j, head, 1) + e];
                d[place(layer, j, head, 1) + e] += score * p[place(layer, i, head, 0) + e];
                d[place(layer, j, head, 2) + e] += w[j] * d_context[e];
            }
        }
}

void ref_attention_backward(const ref_attention *layer, double *dx, const double *dy,
                            const double *x, int64_t rows)
{
    ref_linear_backward(&layer->out, layer->d_context, dy, layer->context, rows);
    for (int64_t i = 0; i < rows * layer->qkv.out; i++)
        layer->d_projected[i] = 0;
    for (int64_t head = 0; head < layer->heads; head++)
        for (int64_t i = 0; i < rows; i++)
            attend_row_backward(layer, rows, head, i);
    ref_linear_backward(&layer->qkv, dx, layer->d_projected, x, rows);
}

double ref_cross_entropy(double *d, const double *logits, int64_t n, int64_t label)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        most = fmax(most, logits[j]);
    for (int64_t j = 0; j < n; j++)
        sum += exp(logits[j] - most);
    for (int64_t j = 0; j < n; j++)
        d[j] = label < 0 ? 0 : exp(logits[j] - most) / sum - (j == label);
    return label < 0 ? 0 : log(sum) + most - logits[label];
}
