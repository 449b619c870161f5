/* Controllers: what they decided, and what they do to each other. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value), more && el("dd", {}, more));
  const plain = (name) => name.replace(/_/g, " ");

  const facts = (result) => el("dl", { class: "facts" },
    fact("regime", result.regime.class || "not known", result.regime.because || ""),
    fact("decisions", taut.count(result.actions)),
    fact("controllers", taut.count(result.controllers.length), result.controllers.slice(0, 4).join(", ") + (result.controllers.length > 4 ? " …" : "")),
    fact("relations", taut.count(result.relations.length), result.relations.length ? [...new Set(result.relations.map((r) => r.kind))].join(", ") : "none was found"));

  // -------------------------------------------------------------------------------------------------------------------
  // Decisions over time, above the steps that they fell into

  const [LANE, MOST_LANES] = [20, 16];
  const scaled = (ns) => [["hours", 3600e9], ["minutes", 60e9]].find(([, size]) => ns >= 2 * size) || ["seconds", 1e9];

  const course = (data, context) => {
    if (!data.actions.length) return null;
    const whose = (a) => [a.layer, a.controller || "unknown"].filter(Boolean).join(": ");
    const on = (a) => (a.target ? `${whose(a)}, ${a.target}` : whose(a));
    const lane = new Set(data.actions.map(on)).size <= MOST_LANES ? on : whose;
    const lanes = [...new Set(data.actions.map(lane))].sort();
    const times = data.step_times && data.step_begin_ns.length ? data.step_begin_ns : [];
    const all = [...data.actions.map((a) => a.time_ns), ...times];
    const first = all.reduce((a, b) => Math.min(a, b));
    const [unit, size] = scaled(all.reduce((a, b) => Math.max(a, b)) - first);
    const ways = ["up", "down", "not told"];
    const rows = data.actions.map((a) => ({ time: (a.time_ns - first) / size, lane: lane(a), way: ways[a.direction > 0 ? 0 : a.direction < 0 ? 1 : 2], what: [a.knob, a.target].filter(Boolean).join(" of ") + (a.before || a.after ? `: ${a.before || "?"} → ${a.after || "?"}` : "") }));
    const walls = times.map((ns, i) => ({ time: (ns - first) / size, ms: data.step_times.observed_ns[i] / 1e6 }));
    const most = Math.max(...rows.map((r) => r.time), ...walls.map((r) => r.time), 1e-9);
    const x = (title) => ({ field: "time", type: "quantitative", title, scale: { domain: [0, most], nice: false }, axis: { grid: false, labelFlush: false } });
    const word = `${unit} since ${new Date(first / 1e6).toISOString().slice(0, 19).replace("T", " ")} UTC`;
    const edge = { minExtent: 190, maxExtent: 190, labelLimit: 180 };
    const dots = () => ({
      data: { values: rows }, mark: { type: "point", filled: true, size: 54, opacity: 0.85 },
      encoding: {
        x: x(walls.length ? null : word), y: { field: "lane", type: "nominal", title: null, sort: lanes, axis: { ...edge, grid: true } },
        shape: { field: "way", type: "nominal", scale: { domain: ways, range: ["triangle-up", "triangle-down", "circle"] }, legend: null },
        color: { field: "way", type: "nominal", scale: { domain: ways, range: ["compute", "slow", "gap"].map(taut.colour) }, legend: null },
        tooltip: [{ field: "lane", title: "controller" }, { field: "what" }, { field: "time", title: unit, format: ".4~g" }],
      },
    });
    const line = () => ({ data: { values: walls }, mark: { type: "line", color: taut.colour("ink"), strokeWidth: 1.4 }, encoding: { x: x(word), y: { field: "ms", type: "quantitative", title: null, axis: { ...edge, tickCount: 3, labelExpr: "datum.label + ' ms'" } } } });
    const upper = el("div", {});
    upper.style.height = `${Math.max(60, lanes.length * LANE) + (walls.length ? 24 : 40)}px`;
    upper.style.flex = "none";
    const lower = walls.length ? el("div", { class: "low" }) : null;
    queueMicrotask(() => {
      taut.chart(upper, dots, `${rows.length} decisions of ${lanes.length} controllers over time`, context.signal);
      if (lower) taut.chart(lower, line, "step times, ms, on the same axis", context.signal);
    });
    return el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "decisions over time"), el("span", { class: "scale" }, "▲ up  ▼ down  ● not told")), upper, lower);
  };

  const relations = (data, context) => {
    const rows = data.result.relations.map((relation, i) => ({ ...relation, zoned: data.zones[i] || 0 }));
    if (!data.result.actions) return taut.empty("Nobody decided anything here", "The logs that were read hold no decision of a controller, so there is nothing to test.");
    if (!rows.length) return taut.empty("No relation between controllers shows", data.result.regime.because ? "What would tell more stands above." : "Their decisions were tested for conflict, oscillation, amplification and the other relations of docs/control.md.");
    const seen = (r) => r.zone && r.zone.steps && context.card.views.includes("timeline");
    return el("section", { class: "card" }, taut.table({ caption: "what they do to each other", csv: "relations.csv", rows, columns: [
      { key: "kind", label: "relation" }, { key: "controllers", label: "controllers", value: (r) => r.controllers.join(" ↔ ") },
      { key: "target", label: "on", value: (r) => [r.target, r.knob].filter(Boolean).join(", ") }, { key: "count", label: "times", number: true },
      { key: "q", label: "by chance", title: "the chance of such evidence without the relation, after correction for all that was tested", number: true, text: (r) => (r.q === null ? "–" : r.q < 0.001 ? "< 0.1 %" : taut.percent(r.q)) },
      { key: "cost", label: "cost", number: true, value: (r) => r.cost.rank_ns, text: (r) => (r.cost.money ? taut.money(r.cost.money, r.cost.currency) : r.cost.rank_ns ? taut.ns(r.cost.rank_ns) : "–") },
      { key: "because", label: "because", wide: true },
      context.card.views.includes("timeline") && { key: "zoned", label: "on the graph", number: true, node: (r) => (seen(r) ? el("a", { href: context.href("timeline", { rank: r.zone.ranks[0], step: r.zone.steps[0] }) }, taut.count(r.zoned, "op")) : taut.count(r.zoned, "op")) } ].filter(Boolean) }));
  };

  const advice = (result) => {
    const rows = result.relations.filter((r) => r.advice).map((r) => r.advice);
    if (!rows.length) return null;
    return el("section", { class: "card" }, taut.table({ caption: "what would separate them", rows, columns: [
      { key: "kind", label: "relation" }, { key: "target", label: "on" }, { key: "says", label: "separation", wide: true, value: (a) => a.says || "none of those tried removes it" }, { key: "costs", label: "what it costs", wide: true },
      { key: "shows", label: "shows in", number: true, text: (a) => `${a.shows} of ${a.runs} runs` } ] }));
  };

  const stack = (data) => {
    if (!data.stack) return null;
    const controllers = data.stack.controllers;
    const pairs = data.stack.pairs.map((p) => ({ first: controllers[p.first].name, then: controllers[p.then].name, coherent: p.coherent, incoherent: p.incoherent }));
    return el("section", { class: "card" }, taut.table({ caption: "controllers by layer", small: true, rows: controllers, columns: [
      { key: "layer", label: "layer" }, { key: "name", label: "controller" }, { key: "decisions", label: "decisions", number: true },
      { key: "turned_back", label: "turned back", number: true, title: "reverse its own last one on the same knob although demand did not move that way" } ] }),
    pairs.length ? taut.table({ caption: "who decides after whom on one target", small: true, rows: pairs, sort: "-incoherent", columns: [
      { key: "first", label: "first" }, { key: "then", label: "then" }, { key: "coherent", label: "same way", number: true }, { key: "incoherent", label: "against it", number: true } ] }) : null);
  };

  const indices = (result) => {
    const rows = Object.entries(result.indices).map(([name, estimate]) => ({ name: plain(name), estimate }));
    return el("section", { class: "card" }, taut.table({ caption: "indices", small: true, csv: "indices.csv", rows, columns: [
      { key: "name", label: "index" }, { key: "value", label: "value", number: true, value: (r) => (r.estimate ? r.estimate.value : null), text: (r) => (r.estimate ? taut.three(r.estimate.value) : "not measured") },
      { key: "range", label: "95 %", number: true, value: (r) => (r.estimate ? r.estimate.lo : null), text: (r) => (r.estimate && r.estimate.lo !== null && r.estimate.lo !== undefined && r.estimate.hi !== null ? `${taut.three(r.estimate.lo)}–${taut.three(r.estimate.hi)}` : "–") } ] }));
  };

  taut.view({
    name: "control",
    title: "Control",
    key: "6",
    needs: (card) => ({ text: "No decisions of controllers were read: give the logs of schedulers, autoscalers, balancers and retries beside the traces, or alone.", command: card.verb === "analyze" ? "taut analyze TRACES balancer.log -o run" : "taut control slurmctld.log -o run" }),
    async draw(root, context) {
      const data = await context.get("control");
      const result = data.result;
      taut.add(root, el("h1", {}, "Control"), facts(result), relations(data, context), course(data, context), advice(result), el("div", { class: "sides" }, stack(data), indices(result)),
        result.partial.length ? taut.fold("what is missing", el("ul", {}, result.partial.map((line) => el("li", {}, line)))) : null);
    },
  });
})();
