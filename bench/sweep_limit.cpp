// The limit of replay: the max-plus recurrence of src/taut/replay/engine.py as plain C++, one thread, nothing allocated.
//
//     g++ -O3 -march=native -shared -fPIC -o sweep_limit.so bench/sweep_limit.cpp
//
// For op v with predecessors u, slot j that it joins and slot s that it waits at:
//
//     arrival(v) = max(0, max over u of end(u) + lag(u, v)) + gap(v)
//     opens(j)   = max over the ops that join j of their arrival
//     end(v)     = max(arrival(v), opens(s) + wait_lag(v)) + work(v)
//
// bench/sweep_limit.py calls it on the arrays of a graph and compares every result with taut's.

#include <algorithm>
#include <cstdint>

using Index = int32_t;
using Time = int64_t;

struct Graph {  // arrays of a program, in the order in which taut's kernels take them
    int64_t n_events;
    const Index *events, *pred_ptr, *pred;
    const Time *lag;
    const Index *join, *wait;
    const Time *wait_lag;
};

struct Replay {  // what one replay gives, and per slot when it opens and who opened it
    Time *arrival, *end;
    Index *bound, *opener;
    Time *opens;
    Index *last;
};

extern "C" void sweep(const Graph *g, const Time *work, const Time *gap, int64_t n, int64_t slots, const Replay *r) {
    std::fill(r->opener, r->opener + n, -1);
    std::fill(r->opens, r->opens + slots + 1, -(Time(1) << 62));
    std::fill(r->last, r->last + slots + 1, -1);
    for (int64_t k = 0; k < g->n_events; ++k) {
        const Index event = g->events[k];
        if (event >= 0) {
            const Index v = event, s = g->join[v];
            Time t = 0;
            Index b = -1;
            for (Index i = g->pred_ptr[v]; i < g->pred_ptr[v + 1]; ++i) {
                const Time ready = r->end[g->pred[i]] + g->lag[i];
                if (ready > t || (b < 0 && ready == t)) t = ready, b = g->pred[i];
            }
            t += gap[v];
            r->arrival[v] = t;
            r->bound[v] = b;
            r->end[v] = t + work[v];
            if (s >= 0 && t > r->opens[s]) r->opens[s] = t, r->last[s] = v;
        } else {
            const Index v = ~event, s = g->wait[v];
            const Time t = r->opens[s] + g->wait_lag[v];
            if (t > r->arrival[v]) r->opener[v] = r->last[s], r->end[v] = t + work[v];
        }
    }
}

struct Columns {  // a row per register, a column per replay; column k takes ``other`` for ops whose key is k
    int64_t n;
    const Index *op_register, *slot_register, *window;
    const bool *closes;
    const double *gap;
    const Time *base, *other;
    const Index *key;
    double *state, *opens, *done;
    bool *seen;
};

extern "C" void sweep_many(const Graph *g, const Columns *c) {
    const int64_t n = c->n;
    for (int64_t e = 0; e < g->n_events; ++e) {
        const Index event = g->events[e], v = event >= 0 ? event : ~event;
        double *__restrict__ row = c->state + n * c->op_register[v];
        const double work = double(c->base[v]);
        if (event >= 0) {
            const Index lo = g->pred_ptr[v], hi = g->pred_ptr[v + 1];
            const double own = c->gap[v];
            if (lo == hi) std::fill(row, row + n, own);
            for (Index i = lo; i < hi; ++i) {
                const double *from = c->state + n * c->op_register[g->pred[i]], late = double(g->lag[i]) + own;
                // The first predecessor writes the row, the others raise it.
                if (i == lo) for (int64_t k = 0; k < n; ++k) row[k] = std::max(from[k] + late, own);
                else for (int64_t k = 0; k < n; ++k) row[k] = std::max(row[k], from[k] + late);
            }
            if (const Index j = g->join[v]; j >= 0) {
                double *__restrict__ gate = c->opens + n * c->slot_register[j];
                if (c->seen[j]) for (int64_t k = 0; k < n; ++k) gate[k] = std::max(gate[k], row[k]);
                else std::copy(row, row + n, gate);
                c->seen[j] = true;
            }
            if (g->wait[v] >= 0) continue;
            for (int64_t k = 0; k < n; ++k) row[k] += work;
        } else {
            const double *gate = c->opens + n * c->slot_register[g->wait[v]], late = double(g->wait_lag[v]);
            for (int64_t k = 0; k < n; ++k) row[k] = std::max(row[k], gate[k] + late) + work;
        }
        if (const Index k = c->key[v]; k >= 0 && k < n) row[k] += double(c->other[v] - c->base[v]);
        if (c->closes[v]) {
            double *__restrict__ done = c->done + n * c->window[v];
            for (int64_t k = 0; k < n; ++k) done[k] = std::max(done[k], row[k]);
        }
    }
}
