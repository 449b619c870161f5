/* Jobs that run, as collectors see them: what is open, since when, what it costs, who is late. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const EVERY_MS = 2000;
  const MOST_NAMED = 4;
  const START = "import taut.watch; taut.watch.start()";

  // -------------------------------------------------------------------------------------------------------------------
  // Words

  const clock = (ns) => new Date(ns / 1e6).toISOString().slice(11, 19);
  const some = (words) => words.slice(0, MOST_NAMED).join(", ") + (words.length > MOST_NAMED ? ` and ${taut.count(words.length - MOST_NAMED)} more` : "");

  /** Who a finding names, and where they are. */
  const who = (finding) => {
    if (finding.links.length) return `link ${some(finding.links)}`;
    if (!finding.ranks.length) return "all ranks";
    const hosts = [...new Set(finding.hosts.filter(Boolean))];
    return `rank ${some(finding.ranks.map(String))}${hosts.length ? ` on ${some(hosts)}` : ""}`;
  };
  const cost = (finding) => (finding.money_per_hour === null ? "not known: the collector has no price (--gpu-hour)" : `${taut.money(finding.money_per_hour, finding.currency)} an hour`);
  const since = (finding) => {
    const step = finding.since_step === null ? "a step that was not seen" : `step ${taut.count(finding.since_step)}`;
    return `${step}${finding.delay_steps === null ? "" : `, found ${taut.count(finding.delay_steps, "step")} later`}`;
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Parts of a job. Each is drawn again only where what it shows has changed: what is read or focused stays.

  /** An element whose inside ``make(data)`` draws, when its data differ from those before. */
  const part = (element, make) => {
    let before = null;
    element.show = (data) => {
      const text = JSON.stringify(data);
      if (text === before) return;
      before = text;
      const had = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      element.replaceChildren(...[make(data)].flat().filter(Boolean));
      const again = had && [...element.children].find((one) => one.dataset.key === had);
      if (again) again.focus();
    };
    return element;
  };

  const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value), more && el("dd", {}, more));

  const facts = (job) => {
    const lost = Object.values(job.not_received).reduce((sum, count) => sum + count, 0);
    const reserve = job.reserve && taut.interval(job.reserve, taut.three);
    return [
      fact("step", taut.ns(job.step_ns), job.last_step === null ? "no whole step was seen" : `median; the last was step ${taut.count(job.last_step)}`),
      fact("ranks heard", `${taut.count(job.heard)}${job.world === null ? "" : ` of ${taut.count(job.world)}`}`, [job.lost ? el("span", { class: "bad" }, `! ${taut.count(job.lost)} lost`) : "none lost", job.ended ? `, ${taut.count(job.ended)} ended` : ""]),
      fact("regime", job.regime || "not known yet", "by the last analysis, one a minute"),
      fact("reserve", job.reserve ? `× ${taut.three(job.reserve.value)}` : "–", job.reserve ? `${reserve}: so much may jitter grow` : "not known"),
      fact("events not received", taut.count(lost), lost ? Object.entries(job.not_received).map(([why, count]) => `${taut.count(count)} ${why}`).join(", ") : `${taut.count(job.received)} received`)];
  };

  const finding = (one) => el("article", {},
    el("h3", {}, el("span", { class: "bad" }, `${one.mode}: ${who(one)}`)),
    el("p", {}, one.text),
    el("dl", { class: "pairs" },
      el("dt", {}, "since"), el("dd", {}, since(one)),
      el("dt", {}, "told"), el("dd", {}, `at ${clock(one.at_ns)} UTC; false alarms of a healthy job: at most ${taut.three(one.false_alarms_per_hour)} an hour`),
      el("dt", {}, "costs"), el("dd", {}, cost(one)),
      one.cannot_see.length > 0 && [el("dt", {}, "not seen"), el("dd", {}, one.cannot_see.map((line) => el("div", {}, line)))]));

  const open = (job) => (job.findings.length ? job.findings.map(finding) : el("p", { class: "muted" }, job.class === "healthy" ? "Nothing is open." : "Nothing is open; that is not yet to say that the job is healthy."));

  /** Times of the last steps as a line: zero at the foot. */
  const steps = ({ steps_ns: times, last_step: last }) => {
    if (times.length < 2) return el("p", { class: "muted" }, "No steps yet.");
    const most = Math.max(...times);
    const points = times.map((ns, i) => `${((1000 * i) / (times.length - 1)).toFixed(1)},${(100 - (96 * ns) / (most || 1)).toFixed(1)}`).join(" ");
    const words = `${taut.count(times.length)} steps, from ${taut.ns(Math.min(...times))} to ${taut.ns(most)}, the last ${taut.ns(times[times.length - 1])}`;
    return [
      el("div", { class: "course" }, el("span", {}, taut.ns(most)), el("span", {}, "0"),
        taut.svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": `time of the last ${words}` },
          taut.svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" }))),
      el("p", { class: "note" }, `${words}${last === null ? "" : `, step ${taut.count(last)}`}`)];
  };

  const signed = (key, label, title) => ({ key, label, title, number: true, text: (r) => taut.signed(r[key], taut.ns) });
  const STATES = { heard: "heard", lost: "! lost", ended: "ended" };
  const rankTable = () => taut.table({ caption: "Ranks, the latest first", rows: [], csv: "ranks.csv", small: true, columns: [
    { key: "rank", label: "rank", text: (r) => String(r.rank) },
    { key: "host", label: "host", text: (r) => [r.host, r.gpu === null ? null : `GPU ${r.gpu}`].filter(Boolean).join(", ") || "–" },
    { key: "state", label: "state", node: (r) => el("span", { class: r.state === "lost" ? "bad" : "" }, STATES[r.state] || r.state) },
    signed("late_ns", "late", "how late it comes to its gates behind the middle member; median of the last steps"),
    signed("busy_ns", "busy", "how much longer than the middle rank it is busy in a step"),
    signed("loader_ns", "loader", "how much longer than the middle rank it is in its loader in a step"),
    { key: "dropped", label: "dropped", number: true, title: "events that its process could not send" } ] });

  const closedTable = () => taut.table({ caption: "Closed in the last day", rows: [], csv: "closed-findings.csv", small: true, columns: [
    { key: "at_ns", label: "at, UTC", text: (f) => clock(f.at_ns), title: "when it was closed" },
    { key: "job", label: "job" },
    { key: "mode", label: "mode" },
    { key: "who", label: "who", value: who },
    { key: "since_step", label: "from step", number: true },
    { key: "text", label: "what" } ] });

  const runs = ({ runs: list }, context) => (list.length
    ? [el("h2", {}, "Runs of this job"), el("ul", {}, list.map((run) => el("li", {}, el("span", { class: "muted" }, `${taut.ago(run.made_ns)}: `), taut.sign(run.class), " ", el("a", { href: context.href(run.views[0] || "overview", {}, run.id), title: run.verdict }, run.verdict))))]
    : [el("h2", {}, "Runs of this job"), el("p", { class: "muted" }, "None in the list has its name.")]);

  // -------------------------------------------------------------------------------------------------------------------
  // The page

  const nobody = () => el("div", { class: "empty" }, el("p", { class: "strong" }, "No job is watched here"),
    el("p", {}, "Start a collector that keeps what it sees below the folders that are served, and have the ranks of a job tell it when they come to their gates. Both sides know the secret in TAUT_WATCH_SECRET."),
    taut.command("taut watch collect"), taut.command(START, "in the job"));

  const silent = (folder) => el("div", { class: "empty" },
    el("p", { class: "strong" }, folder.at_ns === null ? `${folder.folder}: what the collector wrote cannot be read` : `${folder.folder}: nothing has been written since ${taut.when(folder.at_ns)}, ${taut.ago(folder.at_ns)}`),
    el("p", {}, "The collector has ended, or cannot write. What is shown of its jobs is from then."), taut.command(`taut watch collect --keep ${taut.quoted(folder.folder)}`));

  const unheard = (folder) => el("div", { class: "empty" }, el("p", { class: "strong" }, `${folder.folder}: a collector listens, and has heard of no job yet`),
    el("p", {}, "In the job, with the same secret and the address in TAUT_WATCH:"), taut.command(START));

  /** Every job with the folder that it is in, and a name that tells it from those of others. */
  const listed = (view) => view.folders.flatMap((folder) => folder.jobs.map((job) => ({ folder, job, key: view.folders.length > 1 ? `${folder.folder} ${job.watched.job}` : job.watched.job })));

  const jobButton = (one, chosen, pick) =>
    taut.button([taut.sign(one.kind), " ", one.name, one.open ? ` (${taut.count(one.open)} open)` : ""], () => pick(one.key), { class: "job", "aria-pressed": String(one.key === chosen), "data-key": one.key, title: one.key });

  taut.view({
    name: "live",
    title: "Live",
    async draw(root, context) {
      let view = await context.get("live");
      let chosen = context.params.job || null;
      let paused = false;
      let failing = false;
      const told = new Map(); // verdicts by job, to say what changed
      const stopped = part(el("div", { class: "listed" }), ({ folders }) => folders.map((one) => (one.old ? silent(one) : unheard(one))));
      const seen = el("span", { class: "muted" });
      const pause = taut.button("pause", () => { paused = !paused; pause.setAttribute("aria-pressed", String(paused)); if (!paused) look(); draw(); }, { class: "small", "aria-pressed": "false" });
      const jobs = part(el("div", { class: "jobs", role: "group", "aria-label": "jobs" }), ({ all, key }) => all.map((one) => jobButton(one, key, pick)));
      const verdict = part(el("div", { class: "headline" }), ({ kind, text, job }) => [taut.sign(kind), el("h2", { title: text }, text), el("p", { class: "because" }, `job ${job}`)]);
      const figures = part(el("dl", { class: "facts" }), facts);
      const findings = part(el("div", { class: "findings", role: "region", "aria-label": "open findings", tabindex: "0" }), open);
      const course = part(el("div", { class: "listed" }), steps);
      const [ranks, closed] = [rankTable(), closedTable()];
      const more = el("p", { class: "note" });
      const beside = part(el("div", { class: "listed" }), (job) => runs(job, context));
      const body = el("div", { class: "live-body" }, el("section", { class: "card" }, verdict), figures,
        el("div", { class: "sides" },
          el("div", {}, el("section", { class: "card" }, el("h2", {}, "Open findings"), findings), el("section", { class: "card rest" }, ranks)),
          el("div", {}, el("section", { class: "card" }, el("h2", {}, "Step times"), course, beside), el("section", { class: "card rest" }, closed, more))));
      const empty = nobody();
      root.append(el("h1", { class: "unseen" }, "Live"), el("div", { class: "head-line" }, jobs, seen, pause), stopped, empty, body);

      const pick = (key) => { chosen = key; context.set({ job: key }); draw(); };
      const say = (all) => {
        for (const { key, job } of all) {
          const text = job.watched.verdict;
          if (told.has(key) && told.get(key) !== text) context.live(`${job.watched.job}: ${text}`);
          told.set(key, text);
        }
      };
      const draw = () => {
        const all = listed(view);
        const one = all.find((other) => other.key === chosen) || all[0];
        const newest = Math.max(0, ...view.folders.map((folder) => folder.at_ns || 0));
        seen.textContent = failing ? `! taut serve does not answer; what is shown was seen at ${clock(newest)} UTC` : newest ? `seen at ${clock(newest)} UTC${paused ? ", paused" : ""}` : "";
        seen.className = failing ? "bad" : "muted";
        const minute = Math.floor(view.now_ns / 60e9); // so that what says how long ago something was is drawn again
        stopped.show({ minute, folders: view.folders.filter((folder) => folder.old || !folder.jobs.length) });
        stopped.hidden = !stopped.childElementCount;
        jobs.hidden = all.length < 2;
        body.hidden = !one;
        pause.hidden = !view.folders.length;
        empty.hidden = view.folders.length > 0;
        say(all);
        if (!one) return;
        const job = one.job.watched;
        jobs.show({ key: one.key, all: all.map((other) => ({ key: other.key, kind: other.job.watched.class, name: other.job.watched.job, open: other.job.watched.findings.length })) });
        verdict.show({ kind: job.class, text: job.verdict, job: job.job });
        figures.show(job);
        findings.show({ class: job.class, findings: job.findings });
        course.show({ steps_ns: job.steps_ns, last_step: job.last_step });
        ranks.update(job.ranks);
        closed.update(one.folder.closed);
        more.textContent = one.folder.more_closed ? "Only the newest are shown; the files of the folder hold all of them." : "";
        beside.show({ minute, runs: one.job.runs });
      };
      const look = async () => {
        if (document.hidden || paused) return;
        try {
          view = await context.get("live");
          failing = false;
        } catch (error) {
          if (error.name === "AbortError") return;
          failing = true;
        }
        draw();
      };
      draw();
      const timer = setInterval(look, EVERY_MS);
      document.addEventListener("visibilitychange", look, { signal: context.signal });
      context.signal.addEventListener("abort", () => clearInterval(timer));
      return (params) => { chosen = params.job || null; draw(); };
    },
  });
})();
