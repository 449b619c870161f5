/* What more ranks bring, and where one more stops paying. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value), more && el("dd", {}, more));
  const words = { compute: "compute", interconnect: "interconnect", synchronisation: "synchronisation", recovery: "recovery" };
  const GROUPS = { compute: "useful", interconnect: "communication", synchronisation: "waiting", recovery: "slow" };
  const ratio = (forecast) => { const r = forecast.effective_throughput_ratio; return r === null ? null : typeof r === "number" ? { value: r } : r; };

  /** What a forecast is bound by, and the largest loss where that is another word. */
  const bound = (f) => { const by = f.bound || f.dominant; return by ? by + (f.dominant && f.dominant !== by ? ` (${f.dominant})` : "") : "–"; };

  const facts = (result) => {
    const { regime, threshold } = result, last = result.forecasts[result.forecasts.length - 1];
    const limit = !threshold ? null : threshold.ranks === null ? `more than ${taut.count(threshold.tried)}` : taut.count(threshold.ranks);
    const between = threshold && threshold.ranks !== null && threshold.lo !== null ? `likely ${taut.count(threshold.lo)}${threshold.hi === null ? " or more" : `–${taut.count(threshold.hi)}`}` : "";
    return el("dl", { class: "facts" },
      fact("regime", (regime && regime.class) || "not known", `at ${taut.count(result.ranks, "rank")}` + (regime && regime.reserve ? `; jitter may grow ${taut.three(regime.reserve.value)} times` : "")),
      threshold && fact("one more pays up to", `${limit} ranks`, between),
      threshold && threshold.made_by && fact("what makes the limit", threshold.made_by),
      result.measured && fact("measured on", taut.count(result.measured.ranks, "rank"), taut.count(result.measured.steps, "step")),
      last && fact("bound by", bound(last), `at ${taut.count(last.ranks, "rank")}`));
  };

  const useful = (result, context) => {
    const rows = result.forecasts.filter(ratio).map((f) => ({ ranks: f.ranks, value: ratio(f).value, lo: ratio(f).lo === undefined ? null : ratio(f).lo, hi: ratio(f).hi === undefined ? null : ratio(f).hi })).sort((a, b) => a.ranks - b.ranks);
    if (!rows.length) return null;
    const curve = ((result.threshold && result.threshold.curve) || []).map((p) => ({ ranks: p.ranks, value: p.marginal_return }));
    const x = { field: "ranks", type: "quantitative", scale: { type: "log", base: 2, nice: false }, axis: { grid: false, format: ",d", values: rows.map((r) => r.ranks), labelOverlap: true }, title: "ranks" };
    const y = (field) => ({ field, type: "quantitative", title: "share", axis: { format: ".0%", tickCount: 5 }, scale: { domain: [0, 1] } });
    const spec = () => ({
      layer: [
        { data: { values: rows }, mark: { type: "errorband", color: taut.colour("compute"), opacity: 0.2 }, encoding: { x, y: y("lo"), y2: { field: "hi" } } },
        { data: { values: rows }, mark: { type: "line", color: taut.colour("compute"), point: { color: taut.colour("compute"), size: 46 } }, encoding: { x, y: y("value"), tooltip: [{ field: "ranks", format: "," }, { field: "value", format: ".1%", title: "useful work" }] } },
        ...(curve.length ? [{ data: { values: curve }, mark: { type: "line", color: taut.colour("slow"), strokeDash: [5, 3] }, encoding: { x, y: y("value") } }] : []),
        ...(result.threshold && result.threshold.ranks ? [{ data: { values: [{ ranks: result.threshold.ranks }] }, mark: { type: "rule", color: taut.colour("muted"), strokeDash: [2, 2] }, encoding: { x } }] : []),
      ],
    });
    const picture = el("div", { class: "tall" });
    queueMicrotask(() => taut.chart(picture, spec, "useful work by number of ranks: " + rows.map((r) => `${r.ranks} ranks ${taut.percent(r.value)}`).join(", "), context.signal));
    return el("section", { class: "card" }, el("h2", {}, "useful work", taut.why("Over what an ideal system of this size would do, with its interval; dashed: what one more accelerator adds; the upright line: where it stops paying.")), picture);
  };

  const where = (result) => {
    const rows = result.forecasts.filter((f) => f.groups);
    if (!rows.length) return null;
    const line = (f) => {
      const parts = Object.keys(words).filter((name) => f.groups[name]).map((name) => ({ name, group: GROUPS[name], share: f.groups[name], text: taut.percent(f.groups[name]) }));
      return [el("span", { class: "number" }, taut.count(f.ranks, "rank")), taut.bar(parts, `${f.ranks} ranks: ${parts.map((p) => `${p.name} ${p.text}`).join(", ")}`), el("span", { class: "muted" }, f.bound || "")];
    };
    return el("section", { class: "card" }, el("h2", {}, "where the time goes"), el("div", { class: "bars" }, rows.map(line)), el("div", { class: "buttons" }, Object.keys(words).map((name) => taut.key(GROUPS[name], words[name]))));
  };

  const table = (result) => {
    const has = (key) => result.forecasts.some((f) => f[key] !== undefined && f[key] !== null);
    const columns = [
      { key: "ranks", label: "ranks", number: false, text: (f) => taut.count(f.ranks) },
      { key: "step", label: "step", title: "median, and p10 to p90", number: true, value: (f) => f.step_ns.p50, text: (f) => `${taut.ns(f.step_ns.p50)} (${taut.ns(f.step_ns.p10)}–${taut.ns(f.step_ns.p90)})` },
      { key: "useful", label: "useful work", number: true, value: (f) => (ratio(f) || {}).value, text: (f) => taut.percent((ratio(f) || {}).value) },
      has("mfu") && { key: "mfu", label: "MFU", title: "model FLOPs over the peak of the devices", number: true, text: (f) => taut.percent(f.mfu) },
      has("tokens_per_s") && { key: "tokens_per_s", label: "tokens a second", number: true, text: (f) => taut.count(f.tokens_per_s) },
      has("cost_per_unit") && { key: "cost_per_unit", label: "cost a unit", title: "a million tokens, a task, or a thousand requests", number: true, text: (f) => (f.cost_per_unit === null ? "–" : taut.money(String(f.cost_per_unit), f.currency)) },
      has("energy_per_unit_j") && { key: "energy_per_unit_j", label: "energy a unit", number: true, text: (f) => (f.energy_per_unit_j === null ? "–" : `${taut.three(f.energy_per_unit_j / 3.6e6)} kWh`) },
      has("availability") && { key: "availability", label: "available", number: true, value: (f) => (f.availability ? f.availability.value : null), text: (f) => taut.percent(f.availability ? f.availability.value : null) },
      { key: "bound", label: "bound by", value: (f) => f.bound || f.dominant, text: (f) => bound(f) },
      { key: "regime", label: "regime", value: (f) => (f.regime ? f.regime.class : null) },
      { key: "known", label: "known", value: (f) => (f.in_range ? "✓ yes" : "? beyond what was measured") },
    ].filter(Boolean);
    return el("section", { class: "card" }, taut.table({ caption: "by number of ranks", columns, rows: result.forecasts, csv: "scaling.csv" }));
  };

  const gains = (result) => (result.policies.length ? el("section", { class: "card" }, taut.table({ caption: "with policies", small: true, csv: "policies.csv", rows: result.policies, columns: [
    { key: "name", label: "policies" }, { key: "ranks", label: "ranks", number: true }, { key: "regime", label: "regime", value: (p) => `${p.regime.without || "–"} → ${p.regime.with || "–"}` },
    { key: "useful", label: "useful work", number: true, value: (p) => (ratio(p.forecast.with) || {}).value, text: (p) => `${taut.percent((ratio(p.forecast.without) || {}).value)} → ${taut.percent((ratio(p.forecast.with) || {}).value)}` },
    { key: "costs", label: "what it costs", wide: true, value: (p) => p.policies.map((one) => one.costs).filter(Boolean).join("; ") } ] })) : null);

  const asked = (result) => (result.questions.length ? el("section", { class: "card" }, taut.table({ caption: "questions", small: false, rows: result.questions, columns: [{ key: "question", label: "question" }, { key: "answer", label: "answer", number: true, value: (q) => (q.answer ? q.answer.value : null), text: (q) => (q.answer ? `${taut.three(q.answer.value)}${q.answer.lo === null || q.answer.lo === undefined ? "" : ` (${taut.interval(q.answer, taut.three)})`}` : "–") }, { key: "says", label: "what it is", wide: true }] })) : null);

  const envelope = (around) => {
    const { point, map } = around;
    const columns = [...new Set(map.map((c) => c.ranks))].sort((a, b) => a - b);
    const rows = [...new Set(map.map((c) => c.heterogeneity))].sort((a, b) => b - a);
    const levels = [...new Set(map.map((c) => c.intensity))];
    const nearest = levels.reduce((a, b) => (Math.abs(b - point.intensity.value) < Math.abs(a - point.intensity.value) ? b : a), levels[0]);
    const at = (r, c) => map.find((cell) => cell.ranks === columns[c] && cell.heterogeneity === rows[r] && cell.intensity === nearest);
    const told = (r, c) => { const cell = at(r, c); return cell ? [`${taut.count(columns[c], "rank")}, heterogeneity ${taut.three(rows[r])}`, `${taut.percent(cell.loss_share)} lost${cell.dominates ? `, mostly ${cell.dominates}` : ""}`] : ["not known"]; };
    return el("section", { class: "card" }, el("h2", {}, "failure envelope", taut.why("What would be lost with more ranks and with more unequal ones; the job itself sits at " + `${taut.count(Math.round(point.ranks.value), "rank")}, heterogeneity ${taut.three(point.heterogeneity.value)}.`)),
      el("div", { class: "tall held" }, taut.heat({ rows: rows.map((v) => `heterog. ${taut.three(v)}`), columns: columns.map((v) => taut.count(v)), axis: "ranks", value: (r, c) => { const cell = at(r, c); return cell ? cell.loss_share : null; }, words: told, alt: "share that is lost by number of ranks and heterogeneity; arrow keys move" })));
  };

  /** Findings that are taken as mended: steps are then shorter than those of the run. */
  const mended = (result) => {
    const lines = (result.assumed || []).filter((line) => line.startsWith("mended first"));
    return lines.length ? el("p", { class: "note" }, lines.join("; ")) : null;
  };

  const rests = (result) => {
    const all = [...(result.assumed || []), ...result.defaults.map((key) => `${key}: default`)];
    return all.length ? taut.fold("what it rests on", el("ul", {}, all.map((line) => el("li", {}, line)))) : null;
  };

  taut.view({
    name: "scaling",
    title: "Scaling",
    key: "5",
    needs: (card) => ({ text: "A traced run tells what more ranks would bring, a scenario what a planned system would.", command: card.verb === "analyze" ? `taut project --from ${taut.quoted(card.folder)}` : "taut project --list" }),
    async draw(root, context) {
      const data = await context.get("scaling");
      const result = data.project;
      taut.add(root, el("h1", {}, "Scaling"), data.needs && taut.empty(result ? "Not all can be told" : "What more ranks bring cannot be told", data.needs, data.command));
      if (result) taut.add(root, facts(result), mended(result), el("div", { class: "sides" }, useful(result, context), where(result)), table(result), gains(result), asked(result));
      taut.add(root, data.envelope && data.envelope.map.length ? envelope(data.envelope) : null, result && rests(result), !data.needs && taut.command(data.command));
    },
  });
})();
