/* The first page of a run: what is wrong, what it costs, where to look, and whether to believe it. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const SIGNS = { fault: ["▲", "bad"], structure: ["◆", "bad"], control: ["■", "bad"], unknown: ["?", "muted"], healthy: ["●", "good"] };
  const GROUPS = { useful: "useful", slow: "slow", discarded: "discarded", unfinished: "unfinished", communication: "communication", copy: "copies", waiting: "waiting", idle: "idle", other: "other" };

  // -------------------------------------------------------------------------------------------------------------------
  // What is wrong

  const told = (found) => found.ticket || [found.title, found.saving, found.because, found.do, found.whatif].filter(Boolean).join("\n");

  const DOES = { analyze: "the same again", whatif: "the first finding mended", perfetto: "op by op in Perfetto", html: "this file again", decide: "record a decision", brief: "the document to decide on" };

  const commands = (data) => {
    const dialog = el("dialog", { "aria-labelledby": "commands-title" }, el("h2", { id: "commands-title" }, "In a terminal"),
      Object.keys(DOES).filter((name) => data.commands[name]).map((name) => taut.command(data.commands[name], DOES[name])),
      el("div", { class: "buttons" }, taut.button("close", () => dialog.close(), { class: "main" })));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };

  const buttons = (found, data, context) => {
    const asked = { fix: found.fix, policy: found.policy };
    const can = found.fix.length || found.policy;
    return el("div", { class: "buttons" },
      can && context.card.views.includes("whatif") && el("a", { class: "button main", href: context.href("whatif", asked), title: found.whatif }, "what if ▸"),
      found.id && el("a", { class: "button", href: context.href("decisions", { finding: found.id }), title: found.decided === null ? "record what is done about it" : `decided in record ${found.decided}: see what is done and what came of it` }, found.decided === null ? "decide ▸" : "decided ✓"),
      taut.source.live && context.card.views.includes("timeline") && taut.button("Perfetto ▸", () => taut.perfetto(context).catch((e) => e.name === "AbortError" || taut.say(e.message, true)), { title: data.commands.perfetto }),
      !taut.source.live && taut.button("commands ▸", () => commands(data), { title: "what this file does not do: commands that do it" }),
      taut.button("copy", () => taut.copy(told(found)), { title: found.ticket ? "copy the ticket" : "copy this finding" }));
  };

  const headline = (data, context, at) => {
    const found = data.headlines[at];
    const [mark, tone] = SIGNS[found.severity];
    const many = data.headlines.length;
    const turn = (by) => context.go("overview", { finding: data.headlines[(at + by + many) % many].id });
    return el("header", { class: "headline" },
      el("span", { class: "sign " + tone, role: "img", "aria-label": found.severity, title: found.severity }, mark),
      el("h1", { title: found.title }, found.title),
      many > 1 ? el("div", { class: "turn" }, taut.button("‹", () => turn(-1), { class: "small", "aria-label": "finding before" }), `${at + 1} of ${many} findings`, taut.button("›", () => turn(1), { class: "small", "aria-label": "next finding" })) : el("span", {}),
      el("p", { class: "saving", title: found.saving || found.because }, found.saving || found.because),
      buttons(found, data, context),
      found.saving && el("p", { class: "because", title: [found.because, found.do].join(" ") }, [found.do, found.because].filter(Boolean).join(" – ")));
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Where the money goes

  const figure = (share, word, why) => el("div", { class: "figure" }, el("b", {}, taut.percent(share, 0)), el("span", {}, word, why && taut.why(why)));

  /** Fates by their groups; of those that have none up to two by their own names. */
  const grouped = (fates) => {
    const found = new Map(), named = fates.filter((fate) => fate.group === "other").length <= 2;
    for (const fate of fates) {
      const word = fate.group === "other" && named ? fate.fate : GROUPS[fate.group];
      const group = found.get(word) || { name: fate.group, word, share: 0, money: null };
      group.share += fate.share;
      if (fate.money !== null) group.money = (group.money || 0) + Number(fate.money);
      found.set(word, group);
    }
    const order = Object.keys(GROUPS);
    return [...found.values()].sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  };

  /** What the shares of a bar are of: traced time; of job logs all from the first start to the last end. */
  const whose = (data, priced, hour) => {
    if (priced || hour) return `where the money goes, ${data.currency || ""}${hour ? "/h" : ""}:`;
    return data.run.ranks === null ? `where ${taut.ns(data.fates.reduce((sum, f) => sum + f.rank_ns, 0))} went, first start to last end:` : "where the time goes:";
  };

  const productive = (data) => {
    const unseen = data.fates.filter((f) => f.fate === "unobserved").reduce((sum, f) => sum + f.share, 0);
    return "Rank time that is useful work, up to what the same work takes elsewhere in the job" + (unseen > 0 ? `; of the time that was recorded: ${taut.percent(unseen)} was not.` : ".");
  };

  const spent = (data) => {
    const priced = data.fates.some((fate) => fate.money !== null);
    const hour = data.rank_hour === null ? null : Number(data.rank_hour) * (data.run.ranks || 0);
    const groups = grouped(data.fates);
    const order = Object.keys(GROUPS);
    const parts = [...data.fates].sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group) || b.share - a.share)
      .map((f) => ({ name: f.fate, group: f.group, share: f.share, text: taut.percent(f.share) + (f.money === null ? "" : `, ${taut.money(f.money, data.currency)} in the traced time`) }));
    const words = groups.map((g) => `${g.word} ${taut.percent(g.share)}`).join(", ");
    return el("div", { class: "spent" },
      el("div", { class: "figures" },
        figure(data.nominal_share, "utilised", data.nominal_share === null ? "Nobody measured it." : `What a dashboard shows: time under any kernel or op, waiting included (${data.nominal_is}).`),
        figure(data.effective_share, "productive", productive(data))),
      taut.bar(parts, `where the ${priced || hour ? "money" : "time"} goes: ${words}`),
      el("div", { class: "keys-line" }, el("span", { class: "muted" }, whose(data, priced, hour)),
        groups.map((g) => taut.key(g.name, `${g.word} ${taut.percent(g.share)}`, hour ? el("span", { class: "muted" }, taut.money(hour * g.share, "")) : g.money !== null && el("span", { class: "muted" }, taut.money(g.money, ""))))));
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Four pictures

  const titled = (text, why, ...aside) => el("div", { class: "head" }, el("h2", {}, text, why && taut.why(why)), ...aside);
  const scale = (most, words, tone) => el("span", { class: "scale" }, "0", el("i", { class: tone || "", "aria-hidden": "true" }), words(most));

  const hangs = (data) => taut.empty(`${data.stopped.length > 1 ? "Ranks" : "Rank"} ${data.stopped.join(", ")} stopped: the others wait for ${data.stopped.length > 1 ? "them" : "it"} without an end`, "No gate opens that would tell how long; the finding above says where they wait.");

  const lateness = (data, context) => {
    const map = data.lateness;
    const title = "lateness of ranks at gates, by step";
    if (!map || !map.labels.length) return el("section", { class: "card" }, titled(title), data.stopped.length ? hangs(data) : taut.empty("No rank waits for another here", "Lateness is measured where ranks meet: traces of several ranks with their collectives tell it."));
    const values = map.late_ns;
    const most = values.reduce((m, row) => row.reduce((n, v) => Math.max(n, v || 0), m), 0);
    const step = (c) => (c + 1 < map.steps.length && map.steps[c + 1] - map.steps[c] > 1 ? taut.span(map.steps[c], map.steps[c + 1] - 1) : `step ${map.steps[c]}`);
    const words = (r, c) => [`${map.labels[r]}, ${step(c)}`, values[r][c] === null ? "meets nobody" : `${taut.ns(values[r][c])} behind the median arrival`, "Enter or click: timeline"];
    return el("section", { class: "card" },
      titled(title, "How far behind the median arrival a rank comes, at the gate of the step where it is latest.", scale(most, taut.ns)),
      taut.heat({ rows: map.labels, columns: map.steps.map(String), value: (r, c) => values[r][c], words, left: 92, signal: context.signal,
        pick: (r, c) => context.go("timeline", { rank: map.ranks[r], step: map.steps[c] }),
        alt: `lateness of ${map.labels.length} rows of ranks over ${map.steps.length} steps, at most ${taut.ns(most)}; arrow keys move, Enter opens the timeline` }));
  };

  const unit = (ns) => [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, size]) => ns >= size) || ["ns", 1];

  const steps = (data, context) => {
    const times = data.step_times;
    const title = "step time";
    if (!times || !times.step.length) return el("section", { class: "card" }, titled(title), taut.empty("No steps", "A trace with marks of its steps tells how long each took."));
    const [name, size] = unit(Math.max(...times.observed_ns));
    const rows = times.step.flatMap((step, i) => [{ step, line: "observed", time: times.observed_ns[i] / size }, { step, line: "ideal", time: times.ideal_ns[i] / size }]);
    if (times.baseline_ns !== null) rows.push(...[times.step[0], times.step[times.step.length - 1]].map((step) => ({ step, line: "baseline", time: times.baseline_ns / size })));
    const lines = times.baseline_ns === null ? ["observed", "ideal"] : ["observed", "ideal", "baseline"];
    const picture = el("div", {}), few = [...new Set(times.step)]; // a line needs two points: of few steps dots are drawn, and every step is named
    const spec = () => ({
      data: { values: rows },
      mark: { type: "line", strokeWidth: 1.6, strokeJoin: "round", ...(few.length < 3 ? { point: { filled: true, size: 44 } } : {}) },
      encoding: {
        x: { field: "step", type: "quantitative", title: null, axis: { grid: false, format: "d", tickMinStep: 1, ...(few.length < 12 ? { values: few } : {}) }, scale: { zero: false, nice: false, ...(few.length < 2 ? { domain: [few[0] - 0.5, few[0] + 0.5] } : {}) } },
        y: { field: "time", type: "quantitative", title: name, scale: { zero: true }, axis: { tickCount: 5 } },
        color: { field: "line", type: "nominal", scale: { domain: lines, range: lines.map(taut.colour) }, legend: null },
        strokeDash: { field: "line", type: "nominal", scale: { domain: lines, range: [[1, 0], [5, 3], [2, 2]].slice(0, lines.length) }, legend: null },
        tooltip: [{ field: "line", title: "line" }, { field: "step", title: "step" }, { field: "time", title: name, format: ".4~g" }],
      },
    });
    const legend = el("span", { class: "scale" }, lines.map((line) => el("span", { class: "key" }, el("i", { class: "dash dash-" + line, "aria-hidden": "true" }), line)));
    const middle = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
    const alt = `step time of ${times.step.length} steps: observed ${taut.ns(middle(times.observed_ns))} in the median, ideal ${taut.ns(middle(times.ideal_ns))}` + (times.baseline_ns === null ? "" : `, baseline ${taut.ns(times.baseline_ns)}`);
    queueMicrotask(() => taut.chart(picture, spec, alt, context.signal));
    return el("section", { class: "card" }, titled(title, "Ideal: no op longer than the same op on the other ranks, what findings name mended, gaps kept; no single fix ends before it. Baseline: median step of the healthy run that was compared with.", legend), picture);
  };

  /** Whether a finding names several ranks that hold the others up: no wait is then due to one of them. */
  const together = (data) => data.headlines.some((found) => found.ranks.length > 1 && found.recoverable_share > 0);

  const waited = (data, context) => {
    const waits = data.waits;
    const title = waits && waits.covered_share !== null && waits.covered_share !== undefined ? `who waited for whom: ${taut.percent(waits.covered_share, 0)} of all waiting` : "who waited for whom";
    if (!waits || !waits.cause.length) return el("section", { class: "card" }, titled(title), data.stopped.length ? hangs(data) : together(data) ? taut.empty("No rank alone is waited for", "Ranks that are slow together hide each other: without one of them the others are still waited for. The finding above says what mending all of them saves.") : taut.empty("Nobody waited for anybody in particular", "What waiting there is has no cause among the ranks."));
    const covered = waits.covered_share === null || waits.covered_share === undefined ? 1 : waits.covered_share;
    const cells = new Map(waits.cause.map((cause, i) => [cause * waits.labels.length + waits.victim[i], waits.share[i] * covered]));
    const value = (r, c) => cells.get(r * waits.labels.length + c) || 0;
    const most = Math.max(...waits.share) * covered;
    const short = waits.labels.map((label) => label.replace(/^ranks? /, "").replace(/ \(.*$/, ""));
    const words = (r, c) => [`${waits.labels[c]} waited for ${waits.labels[r]}`, `${taut.percent(value(r, c))} of all waiting`, "Enter or click: structure"];
    const rank = (label) => { const row = data.ranks.find((one) => one.label === label); return row ? row.rank : (/^ranks? (\d+)/.exec(label) || [])[1]; };
    const first = waits.first_steps ? ` Measured on the first ${waits.first_steps} steps.` : "";
    return el("section", { class: "card" },
      titled(title, `Rows caused the waiting, columns waited. It shows ${taut.percent(covered)} of all waiting: the rest has no cause among the ranks (jitter, structure, or not known).` + first, scale(most, (v) => taut.percent(v), "fault")),
      taut.heat({ rows: waits.labels, columns: short, value, words, left: 92, colour: "fault", axis: "who waited (rows: for whom)", signal: context.signal,
        pick: (r, c) => context.go("structure", { rank: rank(waits.labels[r]), cause: waits.labels[r], victim: waits.labels[c] }),
        alt: `waiting of ${waits.labels.length} ranks or groups for each other, at most ${taut.percent(most)} in a cell; arrow keys move, Enter opens the structure` }));
  };

  const jobs = (data) => el("section", { class: "card whole" }, !data.jobs.length ? taut.empty("No job was restarted", "Who waits for whom, and when, is told by traces of the ranks.") : taut.table({ caption: "restarted jobs by what they discarded", rows: data.jobs, sort: "-discarded_rank_ns", csv: "jobs.csv", most: 200, small: true, columns: [
    { key: "job", label: "job", value: (j) => j.name || j.job },
    { key: "attempts", label: "attempts", number: true, text: (j) => taut.count(j.attempts) },
    { key: "held", label: "held", number: true, title: "accelerators, nodes or CPUs that it held", text: (j) => (j.held === null ? "–" : taut.count(j.held)) },
    { key: "held_rank_ns", label: "time", number: true, title: "of all that it held", text: (j) => taut.ns(j.held_rank_ns) },
    { key: "discarded_rank_ns", label: "discarded", number: true, title: "≤: an upper bound, no checkpoint is known", text: (j) => (j.at_most ? "≤ " : "") + taut.ns(j.discarded_rank_ns) },
    { key: "of", label: "of it", number: true, value: (j) => j.discarded_rank_ns / Math.max(j.held_rank_ns, 1), text: (j) => taut.percent(j.discarded_rank_ns / Math.max(j.held_rank_ns, 1)) },
    { key: "down_ns", label: "down", number: true, title: "between attempts", text: (j) => taut.ns(j.down_ns) },
  ] }));

  const ranks = (data, context) => {
    const share = (key, label, title) => ({ key, label, title, number: true, text: (r) => taut.percent(r[key]) });
    const place = (r) => (r.host === null ? null : r.gpu === null ? r.host : `${r.host}, GPU ${r.gpu}`);
    const columns = [
      { key: "rank", label: "rank", value: (r) => r.rank, text: (r) => String(r.rank) },
      { key: "host", label: "host", value: place },
      share("compute_share", "compute", "computing, of its wall time"),
      share("communication_share", "comm.", "communication that nothing hides, without waiting"),
      ...(data.ranks.some((r) => r.copy_share >= 0.0005) ? [share("copy_share", "copy", "copies that nothing hides")] : []),
      share("wait_share", "wait", "waiting at gates that nothing hides"),
      share("gap_share", "gap", "host, input, launch and whatever else is left"),
      { key: "late_ns", label: "late", number: true, title: "behind the median arrival at the gate where it is latest, in the median step", text: (r) => taut.ns(r.late_ns) },
    ];
    return el("section", { class: "card" }, taut.table({ caption: "ranks", columns, rows: data.ranks, sort: "-late_ns", csv: "ranks.csv", filter: "filter ranks", most: 200, small: true, pick: (r) => context.go("timeline", { rank: r.rank }) }));
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Whether to believe it

  const trust = (data) => {
    const mark = (good) => (good === null ? ["?", "muted"] : good ? ["✓", "good"] : ["!", "bad"]);
    const one = (sign) => {
      const [text, tone] = mark(sign.good);
      return el("span", { class: "one" + (sign.text.length > 30 ? " long" : ""), title: sign.text }, el("b", { class: tone, "aria-hidden": "true" }, text, " "), sign.text);
    };
    const all = () => {
      const dialog = el("dialog", { "aria-labelledby": "trust-title" }, el("h2", { id: "trust-title" }, "What the answer rests on"),
        el("ul", {}, data.trust.map((sign) => el("li", {}, `${mark(sign.good)[0]} ${sign.text}`))),
        taut.command(data.commands.analyze || `taut analyze`), el("div", { class: "buttons" }, taut.button("close", () => dialog.close(), { class: "main" })));
      dialog.addEventListener("close", () => dialog.remove());
      document.body.append(dialog);
      dialog.showModal();
    };
    return el("footer", { class: "trust" }, el("span", { class: "muted" }, "trust:"), data.trust.slice(0, 5).map(one), taut.button(data.trust.length > 5 ? `${data.trust.length - 5} more …` : "details …", all, { class: "small" }));
  };

  taut.view({
    name: "overview",
    title: "Overview",
    key: "1",
    needs: "It opens what `taut analyze` found in the traces of a job.",
    async draw(root, context) {
      const data = await context.get("overview");
      const place = (params) => Math.max(0, data.headlines.findIndex((found) => found.id !== null && found.id === params.finding));
      const top = el("div", {}, headline(data, context, place(context.params)));
      root.append(top, spent(data), el("div", { class: "quarters" }, data.jobs.length || data.run.ranks === null ? jobs(data) : [lateness(data, context), steps(data, context), waited(data, context), ranks(data, context)]), trust(data));
      return (params) => {
        const back = top.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
        top.replaceChildren(headline(data, context, place(params)));
        const again = back && [...top.querySelectorAll("button")].find((b) => b.getAttribute("aria-label") === back);
        if (again) again.focus();
        context.live(data.headlines[place(params)].title);
      };
    },
  });
})();
