/* All runs that are served: what each says, what it costs, how its job has gone. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const EVERY_MS = 4000;

  /** Median steps of earlier runs of the same job, as a line without axes. */
  const trend = (values) => {
    if (values.length < 2) return el("span", { class: "muted" }, "–");
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const y = (v) => 16 - (most > least ? ((v - least) / (most - least)) * 13 : 6);
    const points = values.map((v, i) => `${2 + (i * 60) / (values.length - 1)},${y(v).toFixed(1)}`).join(" ");
    const last = values[values.length - 1];
    return taut.svg("svg", { class: "trend", viewBox: "0 0 66 18", width: 66, height: 18, role: "img", "aria-label": `median step of ${values.length} runs, from ${taut.ns(values[0])} to ${taut.ns(last)}` },
      taut.svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }),
      taut.svg("circle", { cx: 62, cy: y(last).toFixed(1), r: 2.5, fill: "currentColor" }));
  };

  const SIGNS = { healthy: ["●", "good"], component: ["▲", "bad"], structural: ["◆", "bad"], control: ["■", "bad"], unknown: ["?", "muted"] };
  /** A mark for what a verdict says. */
  const sign = taut.sign = (kind) => {
    const [mark, tone] = SIGNS[kind] || ["·", "muted"];
    return el("span", { class: "sign " + tone, title: kind }, mark, el("span", { class: "unseen" }, ` ${kind || "no verdict"} `));
  };

  /** The end of a path, which tells it from its neighbours. */
  const ending = (text, most) => (text.length <= most ? text : "…" + text.slice(text.length - most + 1));

  const columns = (context) => [
    { key: "name", label: "run", value: (r) => r.name, text: (r) => `${r.name} ${r.folder}`, node: (r) => [el("a", { href: context.href(r.views[0] || "overview", {}, r.id), title: `${r.name}: ${r.folder}` }, r.name), el("span", { class: "folder", title: r.folder }, ending(r.folder, 26))] },
    { key: "verb", label: "from", title: "which verb wrote it" },
    { key: "verdict", label: "verdict", wide: true, value: (r) => r.verdict, node: (r) => el("span", { class: "verdict", title: r.verdict }, sign(r.class), " ", r.verdict) },
    { key: "regime", label: "regime", title: "whether one more accelerator still pays; of control loops whether they work together" },
    { key: "ranks", label: "ranks", number: true },
    { key: "steps", label: "steps", number: true },
    { key: "step_ns", label: "median step", number: true, title: "median step; the terminal prints the mean", text: (r) => taut.ns(r.step_ns) },
    { key: "effective_share", label: "productive", number: true, title: "share of the rank time that is useful work", text: (r) => taut.percent(r.effective_share) },
    { key: "recoverable_share", label: "recoverable", number: true, title: "what mending all findings saves, of the wall", text: (r) => taut.percent(r.recoverable_share) },
    { key: "lost_per_hour", label: "saved an hour", number: true, title: "money that mending all findings would save an hour; a bill calls lost all that is not useful", value: (r) => (r.lost_per_hour === null ? null : Number(r.lost_per_hour)), text: (r) => taut.money(r.lost_per_hour, r.currency) },
    { key: "trend", label: "trend", title: "median step of the runs of the same job up to this one", value: (r) => r.trend_ns.length, node: (r) => trend(r.trend_ns) },
    { key: "made_ns", label: "written", number: true, text: (r) => (r.made_ns ? taut.ago(r.made_ns) : "–"), title: "when its folder was written" },
  ];

  const nothing = () =>
    taut.empty("No runs yet", "A run appears here as soon as its folder is written below the folders that are served. Without traces of your own, the demo has some.", "taut demo");

  taut.view({
    name: "runs",
    title: "Runs",
    async draw(root, context) {
      let list = await context.get("runs");
      const shown = taut.table({ caption: "Runs, the newest first", columns: columns(context), rows: list.runs, csv: "runs.csv", filter: "filter runs" });
      const refused = el("div", {});
      const draw = () => {
        empty.hidden = list.runs.length > 0;
        shown.hidden = list.runs.length === 0;
        shown.update(list.runs);
        refused.replaceChildren(...(list.refused.length ? [taut.fold(`${taut.count(list.refused.length, "folder")} cannot be read`, el("ul", {}, list.refused.map((line) => el("li", {}, line))))] : []));
      };
      const empty = nothing();
      root.append(el("h1", { class: "unseen" }, "Runs"), el("section", { class: "card grow" }, empty, shown), refused);
      draw();
      const look = async () => {
        try {
          const newer = await context.get("runs");
          if (newer.version !== list.version) { list = newer; draw(); context.live("the list of runs changed"); }
        } catch { /* the server will be back, or the page is left */ }
      };
      const timer = setInterval(look, EVERY_MS);
      context.signal.addEventListener("abort", () => clearInterval(timer));
    },
  });
})();
