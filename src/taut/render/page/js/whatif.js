/* What would have been otherwise: fixes, policies and factors, answered by replay. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const KINDS = { finding: "findings", rank: "ranks", stage: "pipeline stages", link: "links", class: "classes of ops", gate: "gates" };
  const SCALES = {
    work: ["work", "every op's own duration, times this"],
    bandwidth: ["bandwidth", "transfers take this many times less"],
    gaps: ["gaps", "time before an op that nothing explains, times this; 0 takes all of it out"],
  };

  const list = (value) => (value === undefined || value === null || value === "" ? [] : [value].flat());

  /** What is asked, from the address: {fix: [], policy: [], work, bandwidth, gaps}. */
  const read = (params) => ({ fix: list(params.fix), policy: list(params.policy), ...Object.fromEntries(Object.keys(SCALES).map((key) => [key, Number.isFinite(Number(params[key])) && params[key] !== undefined && params[key] !== "" ? Number(params[key]) : 1])) });

  const written = (asked) => ({ fix: asked.fix, policy: asked.policy, ...Object.fromEntries(Object.keys(SCALES).filter((key) => asked[key] !== 1).map((key) => [key, asked[key]])) });

  const changed = (asked) => Object.values(written(asked)).some((value) => [value].flat().length);

  /** The command that answers the same. */
  const told = (folder, asked) => {
    const scales = Object.keys(SCALES).filter((key) => asked[key] !== 1).map((key) => `--scale ${key}=${asked[key]}`);
    return ["taut whatif", taut.quoted(folder), ...asked.fix.map((fix) => "--fix " + taut.quoted(fix)), ...asked.policy.map((one) => "--policy " + taut.quoted(one)), ...scales].join(" ");
  };

  // -------------------------------------------------------------------------------------------------------------------
  // What can be asked

  const box = (checked, words, saved, change) =>
    el("label", { class: "choice" }, el("input", { type: "checkbox", checked, on: { change: (e) => change(e.target.checked) } }), el("span", { class: "words", title: [words].flat().filter((w) => typeof w === "string").join("") }, words), el("span", { class: "saved" }, saved));

  const parts = (choice) => choice.fixes || [choice.fix];
  const toggled = (values, some, on) => [...values.filter((v) => !some.includes(v)), ...(on ? some : [])];

  /** Fixes that the address names and the list does not: they stand first, and stay when they are taken out. */
  const unlisted = (questions, asked, seen) => {
    const known = new Set(Object.values(questions.choices).flat().flatMap(parts));
    for (const fix of asked.fix) if (!known.has(fix)) seen.add(fix);
    return [...seen].map((fix) => ({ fix, label: fix, saved_share: null }));
  };

  const fixes = (questions, asked, change, seen) => {
    const found = el("div", { class: "choices" });
    const given = unlisted(questions, asked, seen);
    const draw = (wanted) => {
      found.replaceChildren();
      const groups = [...(given.length ? [["asked", given]] : []), ...Object.keys(KINDS).map((kind) => [KINDS[kind], questions.choices[kind] || []])];
      for (const [name, all] of groups) {
        const some = all.filter((choice) => !wanted || `${choice.label} ${choice.fix}`.toLowerCase().includes(wanted));
        if (!some.length) continue;
        found.append(el("h3", {}, name), ...some.map((choice) => box(parts(choice).every((fix) => asked.fix.includes(fix)), choice.label, choice.saved_share === null ? "" : `alone ${taut.percent(choice.saved_share)}`, (on) => change({ fix: toggled(asked.fix, parts(choice), on) }))));
      }
      if (!found.childNodes.length) found.append(el("p", { class: "muted" }, wanted ? "nothing of that name" : "nothing in this run is above its reference"));
    };
    const search = el("input", { type: "search", placeholder: "filter: rank 3, allreduce …", "aria-label": "filter what can be mended", "data-filter": "", spellcheck: "false", on: { input: (e) => draw(e.target.value.trim().toLowerCase()) } });
    draw("");
    return el("section", { class: "card" }, el("div", { class: "head" }, el("h2", {}, "mend", taut.why("What is ticked runs at its reference: as its peers do, or as it did at other times. Everything else stays as it was recorded.")), search), found);
  };

  const policies = (questions, asked, change) => {
    const of = (name) => asked.policy.find((one) => one === name || one.startsWith(name + "="));
    const row = (policy) => {
      const now = of(policy.name);
      const set = (value) => change({ policy: value === null ? asked.policy.filter((one) => one !== now) : [value === "" ? policy.name : `${policy.name}=${value}`] });
      const value = now && now.includes("=") ? now.split("=")[1] : "";
      const chosen = policy.values.length ? el("select", { "aria-label": policy.name + ": value", on: { change: (e) => set(e.target.value) } }, policy.values.map((v) => el("option", { value: v, selected: v === value }, v))) : "";
      return el("label", { class: "choice" }, el("input", { type: "checkbox", checked: Boolean(now), on: { change: (e) => set(e.target.checked ? (policy.values.length ? chosen.value : "") : null) } }),
        el("span", { class: "words", title: policy.meaning }, policy.name, " ", el("span", { class: "meaning" }, policy.meaning)), chosen);
    };
    return el("section", { class: "card" }, el("h2", {}, "policy", taut.why("Another way to synchronise, replayed on the same recorded work. One at a time, after what is mended.")),
      questions.policies.length ? questions.policies.map(row) : el("p", { class: "muted" }, "none can be replayed on this run: they need replicas that meet, and several steps in a row"));
  };

  const sliders = (questions, asked, change) => {
    // A file has answers for some factors only.
    const few = (key) => {
      const [word, meaning] = SCALES[key];
      const values = [...new Set([...questions.grid[key], asked[key]])].sort((a, b) => a - b);
      const chosen = el("select", { "aria-label": `${word}: ${meaning}`, on: { change: (e) => change({ [key]: Number(e.target.value) }) } }, values.map((v) => el("option", { value: v, selected: v === asked[key] }, "× " + v)));
      return el("div", { class: "slider few" }, el("span", {}, word, taut.why(meaning)), chosen);
    };
    const row = (key) => {
      if (questions.grid) return few(key);
      const [least, most] = questions.scales[key];
      const [word, meaning] = SCALES[key];
      // Half as much is as far from the middle as twice as much, where nothing is no choice.
      const [there, back] = least > 0 ? [Math.log2, (x) => 2 ** x] : [(x) => x, (x) => x];
      const rounded = (x) => Number(back(Number(x)).toFixed(2));
      const shown = el("output", {}, "× " + asked[key]);
      const set = (value) => { shown.textContent = "× " + value; slide.setAttribute("aria-valuetext", `times ${value}`); change({ [key]: value }, true); };
      const slide = el("input", { type: "range", min: there(least), max: there(most), step: least > 0 ? 0.01 : 0.05, value: there(asked[key]), "aria-label": `${word}: ${meaning}`, "aria-valuetext": `times ${asked[key]}`, on: { input: (e) => set(rounded(e.target.value)) } });
      const reset = taut.button("× 1", () => { slide.value = there(1); set(1); }, { class: "small", "aria-label": `× 1: ${word} as recorded` });
      return el("div", { class: "slider" }, el("span", {}, word, taut.why(meaning)), slide, shown, reset);
    };
    return el("section", { class: "card" }, el("h2", {}, "factors"), Object.keys(SCALES).filter((key) => questions.scales[key]).map(row));
  };

  // -------------------------------------------------------------------------------------------------------------------
  // The answer

  /** What is saved with the policy, where one is asked for: it comes after all other changes. */
  const whole = (result, end = "value") => {
    const beside = (result.policies || []).length === 1 ? result.policies[0].saved_share[end] : 0;
    return 1 - (1 - result.saved_share) * (1 - beside);
  };

  /** Of a policy that is known as a range only, the range with all changes; nothing of others. */
  const range = (result) => {
    const [only, more] = result.policies || [];
    if (!only || more || only.kind !== "bounded" || only.saved_share.lo === null || only.saved_share.hi === null) return "";
    return `; known as a range only: ${["lo", "hi"].map((end) => taut.signed(whole(result, end), (v) => taut.percent(v)).replace("+", "")).join(" to ")}`;
  };

  const walls = (result) => {
    const changed = result.actual_wall_ns * (1 - whole(result));
    const most = Math.max(result.actual_wall_ns, changed) || 1;
    const row = (name, ns, after) => {
      const length = el("i", { class: after ? "after" : "" });
      length.style.width = `${(100 * ns) / most}%`;
      return [el("span", {}, name), el("div", { class: "track", "aria-hidden": "true" }, length), el("span", {}, taut.ns(ns))];
    };
    return el("div", { class: "walls" }, row("recorded", result.actual_wall_ns), row("changed", changed, true));
  };

  const fact = (name, value, more) => el("div", {}, el("dt", {}, name), el("dd", {}, value), more && el("dd", {}, more));

  const shown = (answer) => {
    const { result, regime } = answer;
    const share = whole(result);
    const saved = share >= 0;
    const some = (result.policies || []).length === 1 && result.saved_share !== 0;
    const ns = taut.ns(Math.abs(share * result.actual_wall_ns)) + (saved ? " less" : " more") + range(result);
    const same = regime.without === regime.with;
    return [
      walls(result),
      el("dl", { class: "facts two" },
        fact(saved ? "saves, of the wall" : "costs, of the wall", taut.percent(Math.abs(share)), some ? `${ns}; ${taut.percent(result.saved_share)} without the policy` : ns),
        fact(saved ? "saves an hour" : "costs an hour", answer.saved_per_hour === null ? "no price" : taut.money(answer.saved_per_hour.replace(/^-/, ""), answer.currency), answer.saved_per_day === null ? "analyse with --gpu-hour 2.50EUR" : `${taut.money(answer.saved_per_day.replace(/^-/, ""), answer.currency)} a day`),
        fact("regime", regime.with || "not known", same ? "as recorded" : `recorded: ${regime.without || "not known"}`),
        fact("effective throughput", taut.percent(answer.effective_throughput_ratio), answer.effective_throughput_ratio === null ? "the change moves or beats the ideal" : "ideal over actual time, without gaps")),
      answer.note && el("p", { class: "note" }, answer.note),
      result.error && el("p", { class: "note" }, `Such predictions were off by ${taut.signed(result.error.lo, (v) => taut.percent(v))} to ${taut.signed(result.error.hi, (v) => taut.percent(v))} where the lab measured what really happened.`),
      (result.policies || []).length ? measured(result.policies) : null,
      result.changes.length ? el("div", {}, el("h3", {}, "changed"), el("ul", {}, result.changes.map((line) => el("li", {}, line)))) : !(result.policies || []).length && el("p", { class: "muted" }, "Nothing is changed yet: tick what to mend, a policy, or move a factor."),
    ];
  };

  const measured = (rows) => taut.table({ caption: "policies", rows, small: true, columns: [
    { key: "name", label: "policy" }, { key: "saved", label: "saves", number: true, value: (p) => p.saved_share.value, text: (p) => (p.kind === "bounded" ? "–" : taut.percent(p.saved_share.value)) },
    { key: "range", label: "likely", number: true, value: (p) => p.saved_share.lo, text: (p) => taut.interval(p.saved_share, (v) => taut.percent(v)) },
    { key: "staleness_steps", label: "stale steps", number: true }, { key: "kind", label: "how" }, { key: "costs", label: "what it costs", wide: true } ] });

  taut.view({
    name: "whatif",
    title: "What if",
    key: "4",
    needs: "Only a traced run can be replayed: `taut analyze` on traces of its ranks.",
    async draw(root, context) {
      const questions = await context.get("questions");
      let asked = read(context.params);
      let turn = 0;
      const seen = new Set();
      const left = el("div", {});
      const panel = el("div", { class: "answer" });
      const command = el("div", {});
      const right = el("section", { class: "card" }, el("h2", {}, "answer"), panel, command);
      const ask = async () => {
        const mine = ++turn;
        panel.classList.add("stale");
        try {
          const answer = await context.get("whatif", written(asked));
          if (mine !== turn) return;
          panel.replaceChildren(...taut.add(document.createDocumentFragment(), shown(answer)).childNodes);
          command.replaceChildren(changed(asked) ? taut.command(answer.command) : ""); // nothing changed is no question to a shell
          context.live(`${whole(answer.result) >= 0 ? "saves" : "costs"} ${taut.percent(Math.abs(whole(answer.result)))} of the wall`);
        } catch (error) {
          if (error.name === "AbortError" || mine !== turn) return;
          panel.replaceChildren(taut.source.live ? taut.empty("This cannot be answered", error.message) : taut.empty("A file replays nothing", "This command does, and so does `taut serve`:"));
          command.replaceChildren(taut.source.live ? "" : taut.command(told(context.card.folder, asked)));
        }
        panel.classList.remove("stale");
      };
      const soon = taut.later(ask, 120);
      const change = (part, waiting = false) => {
        asked = { ...asked, ...part };
        context.set(written(asked));
        if (!waiting) again();
        (waiting ? soon : ask)();
      };
      const forms = () => [fixes(questions, asked, change, seen), policies(questions, asked, change), sliders(questions, asked, change)];
      const again = () => {
        // The tick stays where it is: only what closures hold is new.
        const [wanted, top, held] = [left.querySelector("[data-filter]"), left.querySelector(".choices"), focused()];
        const [text, scrolled] = [wanted ? wanted.value : "", top ? top.scrollTop : 0];
        left.replaceChildren(...forms());
        const search = left.querySelector("[data-filter]");
        if (text) { search.value = text; search.dispatchEvent(new Event("input")); }
        left.querySelector(".choices").scrollTop = scrolled;
        const back = left.querySelectorAll("input, select, button")[held];
        if (back) back.focus({ preventScroll: true });
      };
      const focused = () => [...left.querySelectorAll("input, select, button")].indexOf(document.activeElement);
      left.append(...forms());
      const clear = taut.button("as recorded", () => { asked = read({}); context.set({}); left.replaceChildren(...forms()); ask(); }, { class: "small" });
      root.append(el("div", { class: "head-line" }, el("h1", {}, "What if …"), clear), el("div", { class: "asking" }, left, right));
      await ask();
      return (params) => { asked = read(params); left.replaceChildren(...forms()); return ask(); };
    },
  });
})();
