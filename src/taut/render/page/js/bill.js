/* What was held and charged, where every unit of it went, and whether it closes. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const number = (amount) => (amount === null || amount === undefined ? null : Number(amount));
  const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value), more && el("dd", {}, more));

  /** Three digits of what is small, too: 0.00493. */
  const small = (x) => (x === null || x === undefined ? "–" : x !== 0 && Math.abs(x) < 1 ? String(Number(x.toPrecision(3))) : taut.three(x));
  const KEPT = ["useful work", "services"];
  const timeOf = (rows) => rows.reduce((sum, row) => sum + (row.rank_ns || 0), 0);
  /** Whether a bill has no money at all: then it is one of time. */
  const unpriced = (bill) => bill.accrual.ledger === null && bill.categories.every((c) => c.money === null);
  /** Per row its share: of the money, or without a price of the time. */
  const shareOf = (bill, rows) => {
    const all = timeOf(rows);
    return unpriced(bill) ? (row) => (all ? (row.rank_ns || 0) / all : null) : (row) => row.share;
  };

  const facts = (bill) => {
    const { accrual, period, budget } = bill;
    const money = (amount) => taut.money(amount, bill.currency);
    const lost = unpriced(bill) ? null : bill.categories.reduce((sum, c) => sum + Number(c.lost || 0), 0);
    const whole = Number(accrual.ledger || 0), all = timeOf(bill.categories), away = timeOf(bill.categories.filter((c) => !KEPT.includes(c.name)));
    const energy = bill.energy.joules;
    return el("dl", { class: "facts" },
      fact("used", unpriced(bill) ? taut.ns(all) : money(accrual.ledger), period.start ? `${period.start.slice(0, 10)} to ${(period.end || "").slice(0, 10)}${period.open ? ", still open" : ""}` : "without dates"),
      fact("charged", money(accrual.effective), accrual.effective === null ? "no bill was given" : accrual.closes ? "✓ closes to what was used" : `! ${money(accrual.residual)} is left over`),
      unpriced(bill) ? fact("lost", taut.ns(away), `${taut.percent(all ? away / all : null)} of the ${bill.unit} time: neither useful work nor services`) : fact("lost", money(String(lost)), whole ? `${taut.percent(lost / whole)} of it: neither useful work nor services` : ""),
      budget && fact("budget left", money(budget.left), budget.budget === null ? "" : `of ${money(budget.budget)}; forecast ${money(budget.forecast)}`),
      energy && fact("energy", `${small(energy.value / 3.6e6)} kWh`, `from ${bill.energy.source}` + (bill.energy.stall_joules === null ? "" : `; ${taut.percent(bill.energy.stall_joules / energy.value)} while nothing useful was done`)));
  };

  const GROUPS = {
    "useful work": "useful", "re-runs and discarded work": "slow", "SLA and deadlines": "structural", "energy wasted": "jitter",
    "lower effective utilisation": "waiting", "operational complexity": "host", "over-provisioning": "idle", services: "communication",
    "corrections and credits": "copy",
  };
  const KINDS = { compute: "compute", "slow compute": "slow", communication: "communication", waiting: "fault", gaps: "host", idle: "gap", "everything else": "unexplained" };
  const group = (name) => GROUPS[name] || "other";

  const categories = (bill) => {
    const rows = bill.categories, share = shareOf(bill, rows), title = unpriced(bill) ? "where the time goes" : "where the money goes";
    const words = rows.map((c) => `${c.name} ${taut.percent(share(c))}`).join(", ");
    const amount = (c) => (unpriced(bill) ? taut.ns(c.rank_ns) : taut.money(c.money, bill.currency));
    return el("section", { class: "card" },
      taut.bar(rows.filter(share).map((c) => ({ name: c.name, group: group(c.name), share: share(c), text: `${taut.percent(share(c))}, ${amount(c)}` })), `${title}: ${words}`),
      shares(bill, title, rows, "category", (c) => taut.key(group(c.name), c.name || "none")));
  };

  /** Columns that some row fills: a bill without prices has none of money, one without energy none of that. */
  const filled = (rows, columns) => columns.filter((column) => !column.some || rows.some((row) => row[column.some] !== null && row[column.some] !== undefined));

  const shares = (bill, caption, rows, label, node) => taut.table({ caption, rows, csv: `${caption.replace(/ /g, "-")}.csv`, small: true, most: 100, columns: filled(rows, [
    { key: "name", label, value: (r) => r.name || "", text: (r) => r.name || "none", node },
    { key: "money", some: "money", label: "money", number: true, value: (r) => number(r.money), text: (r) => taut.money(r.money, bill.currency) },
    { key: "share", label: "share", number: true, title: unpriced(bill) ? "of the time" : "of the money", value: shareOf(bill, rows), text: (r) => taut.percent(shareOf(bill, rows)(r)) },
    { key: "lost", some: "lost", label: "lost", number: true, title: "of the money, what is neither useful work nor services", value: (r) => number(r.lost), text: (r) => taut.money(r.lost, bill.currency) },
    { key: "rank_ns", label: bill.unit + " time", number: true, text: (r) => taut.ns(r.rank_ns) },
    { key: "joules", some: "joules", label: "kWh", title: "energy", number: true, value: (r) => (r.joules === null ? null : r.joules / 3.6e6), text: (r) => (r.joules === null ? "–" : small(r.joules / 3.6e6)) },
    { key: "kg_co2e", some: "kg_co2e", label: "kg CO₂e", number: true, text: (r) => small(r.kg_co2e) } ]) });

  const overTime = (data, context) => {
    const course = data.over_time;
    if (!course || course.time_ns.length < 2) return null;
    const kinds = Object.keys(course.money);
    const rows = kinds.flatMap((kind) => course.time_ns.map((ns, i) => ({ kind, time: ns / 1e6, money: course.money[kind][i] })));
    const picture = el("div", { class: "tall" });
    const rest = ["structural", "host", "copy", "jitter"], span = (course.time_ns[course.time_ns.length - 1] - course.time_ns[0]) / 1e9;
    const clock = span < 600 ? "%H:%M:%S" : span < 2 * 86400 ? "%H:%M" : "%b %d";
    const colour = (kind, i) => taut.colour(KINDS[kind] || rest[i % rest.length]);
    const spec = () => ({
      data: { values: rows }, mark: { type: "area", line: false },
      encoding: {
        x: { field: "time", type: "temporal", title: "UTC", scale: { type: "utc" }, axis: { grid: false, labelOverlap: true, format: clock } },
        y: { field: "money", type: "quantitative", title: `${data.result.currency || "money"} so far`, stack: "zero" },
        color: { field: "kind", type: "nominal", title: null, sort: kinds, scale: { domain: kinds, range: kinds.map(colour) }, legend: { orient: "right" } },
        tooltip: [{ field: "kind" }, { field: "money", format: ",.4~g" }, { field: "time", type: "temporal", timeUnit: "utcyearmonthdatehoursminutes", title: "until, UTC" }],
      },
    });
    queueMicrotask(() => taut.chart(picture, spec, `cost over time by kind: ${kinds.join(", ")}`, context.signal));
    return el("section", { class: "card" }, el("h2", {}, "cost so far"), picture, course.undated ? el("p", { class: "note" }, `${taut.money(String(course.undated), data.result.currency)} has no time and is not drawn.`) : null);
  };

  const drill = (bill, context) => {
    const kinds = Object.keys(bill.by).filter((kind) => bill.by[kind].length);
    if (!kinds.length) return null;
    const body = el("div", {});
    const named = (kind) => (row) => (row.name === null ? "none" : kind === "cause" && bill.causes[row.name] ? `${bill.causes[row.name]} (${row.name})` : row.name);
    const draw = (kind) => {
      for (const button of tabs.children) button.setAttribute("aria-pressed", String(button.textContent === kind));
      body.replaceChildren(shares(bill, `by ${kind}`, bill.by[kind], kind, named(kind)));
    };
    const pick = (kind) => { context.set({ by: kind }); draw(kind); };
    const tabs = el("div", { class: "buttons" }, kinds.map((kind) => taut.button(kind, () => pick(kind), { class: "small", "aria-pressed": "false" })));
    draw(kinds.includes(context.params.by) ? context.params.by : kinds[0]);
    return el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "whose it is"), tabs), body);
  };

  const recovery = (bill) => {
    if (!bill.recoverable.length) return null;
    const per = (estimate) => (estimate ? taut.money(String(estimate.value), bill.currency) : "–");
    return el("section", { class: "card" }, taut.table({ caption: "what could be brought back", csv: "recoverable.csv", rows: bill.recoverable, columns: [
      { key: "cause", label: "cause", value: (r) => bill.causes[r.cause] || r.cause },
      { key: "remedy", label: "remedy", wide: true },
      { key: "share", label: "of the wall", number: true, value: (r) => r.saved_share.value, text: (r) => taut.percent(r.saved_share.value) },
      { key: "hour", label: "an hour", number: true, value: (r) => (r.per_hour ? r.per_hour.value : null), text: (r) => per(r.per_hour) },
      { key: "month", label: "a month", number: true, value: (r) => (r.per_month ? r.per_month.value : null), text: (r) => per(r.per_month) },
      { key: "payback", label: "pays back in", number: true, value: (r) => (r.payback_days ? r.payback_days.value : null), node: (r) => (r.payback_days ? taut.count(Math.ceil(r.payback_days.value), "day") : el("span", { title: r.no_payback }, "–")) } ] }));
  };

  const checks = (bill) => {
    const parts = [];
    if (bill.invoices.length) parts.push(taut.table({ caption: "invoices", rows: bill.invoices, small: true, columns: [
      { key: "id", label: "invoice", value: (r) => r.id || "without a number" }, { key: "billed", label: "billed", number: true, value: (r) => number(r.billed), text: (r) => taut.money(r.billed, bill.currency) },
      { key: "allocated", label: "on lines", number: true, value: (r) => number(r.allocated), text: (r) => taut.money(r.allocated, bill.currency) },
      { key: "residual", label: "left", number: true, value: (r) => number(r.residual), text: (r) => taut.money(r.residual, bill.currency) }, { key: "closes", label: "closes", value: (r) => (r.closes ? "✓ yes" : "! no") } ] }));
    if (bill.defects.length) parts.push(taut.table({ caption: "what is wrong with the bill", csv: "defects.csv", rows: bill.defects, columns: [
      { key: "kind", label: "what" }, { key: "rows", label: "charges", number: true }, { key: "money", label: "money", number: true, value: (r) => number(r.money), text: (r) => taut.money(r.money, r.currency) },
      { key: "because", label: "what shows it", wide: true }, { key: "places", label: "where", value: (r) => r.places.join(", ") } ] }));
    if (bill.unmatched.length) parts.push(taut.table({ caption: "charges that meet no host", csv: "unmatched.csv", rows: bill.unmatched, columns: [
      { key: "resource", label: "resource" }, { key: "money", label: "money", number: true, value: (r) => number(r.money), text: (r) => taut.money(r.money, bill.currency) }, { key: "rows", label: "charges", number: true }, { key: "remedy", label: "what would match it", wide: true } ] }));
    return parts.length ? el("section", { class: "card" }, parts) : null;
  };

  const lines = (bill) => taut.fold(`all ${taut.count(bill.lines.length, "line")}`, taut.table({ caption: "lines of the bill", csv: "bill.csv", filter: "filter lines", rows: bill.lines, most: 200, small: true, sort: "-money", columns: [
    { key: "category", label: "category" }, { key: "item", label: "item" }, { key: "fate", label: "fate" }, { key: "cause", label: "cause", value: (r) => r.cause && (bill.causes[r.cause] || r.cause) },
    { key: "money", label: "money", number: true, value: (r) => number(r.money), text: (r) => taut.money(r.money, bill.currency) },
    { key: "billed", label: "on invoices", number: true, value: (r) => number(r.billed), text: (r) => taut.money(r.billed, bill.currency) },
    { key: "source", label: "how sure" }, { key: "from", label: "from", wide: true } ] }));

  const notes = (bill) => {
    const list = (title, texts) => (texts.length ? [el("h3", {}, title), el("ul", {}, texts.map((text) => el("li", {}, text)))] : []);
    const all = [...list("not given", bill.missing), ...list("defaults", bill.defaults), ...list("decided on the way", bill.notes), ...list("read", bill.inputs)];
    return all.length ? taut.fold("what it rests on", el("div", { class: "listed" }, all)) : null;
  };

  /** Of a run without a bill: where its traced time went, and at the price that it was analysed with, its money. */
  const ledger = (root, data) => {
    const order = ["useful", "slow", "discarded", "unfinished", "communication", "copy", "waiting", "idle", "other"], priced = data.fates.some((fate) => fate.money !== null);
    const fates = [...data.fates].sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group) || b.share - a.share);
    const hour = data.rank_hour === null || data.run.ranks === null ? null : Number(data.rank_hour) * data.run.ranks;
    const total = priced ? fates.reduce((sum, fate) => sum + Number(fate.money || 0), 0) : null, run = taut.quoted(data.run.folder);
    const logs = data.run.ranks === null;
    const columns = [
      { key: "fate", label: "fate", node: (r) => taut.key(r.group, r.fate) }, { key: "group", label: "which is" }, { key: "share", label: logs ? "of the time" : "of rank time", number: true, text: (r) => taut.percent(r.share) },
      { key: "rank_ns", label: logs ? "time" : "rank time", number: true, text: (r) => taut.ns(r.rank_ns) },
      ...(priced ? [{ key: "money", label: logs ? data.currency : `${data.currency}, traced time`, number: true, value: (r) => number(r.money), text: (r) => taut.money(r.money, "") }] : []),
      ...(hour ? [{ key: "hour", label: `${data.currency} an hour`, number: true, value: (r) => hour * r.share, text: (r) => taut.money(hour * r.share, "") }] : []),
    ];
    const of = (fate) => (priced ? (total ? Number(fate.money || 0) / total : 0) : fate.share); // what is down or queued takes time and no money
    const useful = fates.filter((fate) => fate.group === "useful").reduce((sum, fate) => sum + of(fate), 0);
    taut.add(root, el("h1", {}, `${taut.percent(useful)} of the ${priced ? "money" : logs ? "time" : "rank time"} went into useful work`),
      el("dl", { class: "facts" }, fact(logs ? "all jobs" : "traced time", priced ? taut.money(total, data.currency) : taut.ns(fates.reduce((sum, fate) => sum + fate.rank_ns, 0)), logs ? priced ? "all that they held" : "first start to last end" : priced ? "every rank, while it was traced" : "of all ranks together"),
        hour ? fact("an hour of the job", taut.money(hour, data.currency), `${taut.count(data.run.ranks, "rank")} at ${taut.money(data.rank_hour, data.currency)}`) : null,
        hour ? fact("not useful", taut.money(hour * (1 - useful), data.currency), "an hour") : null),
      el("section", { class: "card" }, taut.bar(fates.map((f) => ({ name: f.fate, group: f.group, share: of(f), text: taut.percent(of(f)) + (f.money === null ? "" : `, ${taut.money(f.money, data.currency)}`) })), `where it went: ${fates.map((f) => `${f.fate} ${taut.percent(of(f))}`).join(", ")}`),
        taut.table({ caption: priced ? "where the money went" : "where the time went", columns, rows: fates, csv: "fates.csv" })),
      taut.command(`taut bill ${run} --gpu-hour ${hour ? Number(data.rank_hour) + data.currency : "2.50EUR"} -o bill`, "every unit of it on one line, closed to invoices"));
  };

  taut.view({
    name: "bill",
    title: "Bill",
    key: "7",
    needs: (card) => ({ text: "A bill needs a price of an accelerator hour, or a file of prices; with invoices it closes to them.", command: `taut bill ${taut.quoted(card.folder)} --gpu-hour 2.50EUR -o bill` }),
    async draw(root, context) {
      if (context.card.verb !== "bill") { ledger(root, await context.get("overview")); return; }
      const data = await context.get("bill");
      const bill = data.result;
      taut.add(root, el("h1", {}, bill.verdict), facts(bill), el("div", { class: "sides" }, categories(bill), drill(bill, context)), overTime(data, context), recovery(bill), checks(bill), lines(bill), notes(bill));
    },
  });
})();
