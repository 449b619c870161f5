/* Findings, what was decided on them, what became of it, and whether the log proves it. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const SAYS = { kept: ["✓ kept", "good"], missed: ["! missed", "bad"], unclear: ["? unclear", "muted"] };

  // -------------------------------------------------------------------------------------------------------------------
  // Deciding

  const choice = (found, chosen, pick) => {
    const input = el("input", { type: "radio", name: "finding", value: found.id, checked: found.id === chosen, on: { change: () => pick(found) } });
    return el("label", { class: "choice" }, input, el("span", { class: "words", title: found.title }, found.title), el("span", { class: "saved" }, found.saving ? taut.percent(found.recoverable_share) : ""));
  };

  const asked = (data, context, draw) => {
    const open = data.open.filter((found) => found.id !== null);
    let found = open.find((one) => one.id === context.params.finding) || open[0];
    const what = el("textarea", { id: "do", rows: 3, required: true, maxlength: 2000, spellcheck: "true" });
    const who = el("input", { type: "text", id: "by", required: true, maxlength: 200, autocomplete: "name" });
    const [evidence, answer, command] = [el("p", { class: "note" }), el("div", { role: "alert" }), el("div", {})];
    const told = () => {
      const words = data.commands.decide || `taut audit decide ${taut.quoted(context.card.folder)}`;
      const base = words.replace(/ --(finding|do|by)(=| )('[^']*'|\S+)/g, "");
      return [base, "--finding", taut.quoted(found.id), "--do", taut.quoted(what.value.trim() || "…"), "--by", taut.quoted(who.value.trim() || "…")].join(" ");
    };
    const shown = () => command.replaceChildren(taut.command(told()));
    const picked = (one) => {
      found = one;
      if (!what.value || open.some((other) => other.do === what.value)) what.value = one.do;
      evidence.textContent = taut.safe([one.saving, one.because].filter(Boolean).join(" – "));
      context.set({ finding: one.id });
      shown();
    };
    const send = async (event) => {
      event.preventDefault();
      const [left, word] = !what.value.trim() ? [what, "Say what is done."] : !who.value.trim() ? [who, "Say who decides."] : [null, ""];
      if (left) { answer.replaceChildren(el("p", { class: "bad" }, word)); left.focus(); return; }
      try {
        const newer = await context.post("decide", { finding: found.id, do: what.value.trim(), by: who.value.trim() });
        taut.say("The decision is recorded", true);
        draw(newer);
      } catch (error) {
        if (error.name !== "AbortError") answer.replaceChildren(el("p", { class: "bad" }, error.message));
      }
    };
    what.addEventListener("input", shown);
    who.addEventListener("input", shown);
    const form = el("form", { class: "form", novalidate: true, on: { submit: send } },
      el("fieldset", {}, el("legend", {}, "finding"), open.map((one) => choice(one, found.id, picked)), evidence),
      el("label", { for: "do" }, "what is done"), what,
      el("label", { for: "by" }, "by whom"), who,
      taut.source.live ? el("div", { class: "buttons" }, el("button", { type: "submit", class: "main" }, "record the decision"), answer) : el("p", { class: "note" }, "A file records nothing; this command does:"),
      command);
    picked(found);
    return form;
  };

  // -------------------------------------------------------------------------------------------------------------------
  // What was decided

  const share = (estimate) => (estimate ? `${taut.percent(estimate.value)}${estimate.lo === null || estimate.lo === undefined ? "" : ` (${taut.interval(estimate, (v) => taut.percent(v))})`}` : "–");

  const decided = (data) => {
    const detail = (row, key) => { const value = row.record.details[key]; return value === null || value === undefined ? (row.record.redacted.length ? "taken out" : "–") : typeof value === "string" ? value : JSON.stringify(value); };
    const columns = [
      { key: "index", label: "record", value: (r) => r.record.index, text: (r) => `№ ${r.record.index}` },
      { key: "at", label: "when", value: (r) => r.record.at, text: (r) => (r.record.at || "–").replace("T", " ").replace(/:\d\d(\.\d+)?Z?$/, "") },
      { key: "by", label: "by", value: (r) => detail(r, "by") },
      { key: "finding", label: "finding", value: (r) => detail(r, "finding") },
      { key: "do", label: "what is done", wide: true, value: (r) => detail(r, "do") },
      { key: "expected", label: "expected", number: true, value: (r) => (r.outcome && r.outcome.expected_saving ? r.outcome.expected_saving.value : null), text: (r) => share(r.outcome && r.outcome.expected_saving) },
      { key: "measured", label: "measured", number: true, value: (r) => (r.outcome && r.outcome.measured_saving ? r.outcome.measured_saving.value : null), text: (r) => share(r.outcome && r.outcome.measured_saving) },
      { key: "says", label: "outcome", value: (r) => (r.outcome ? r.outcome.says : ""), node: (r) => { const [text, tone] = r.outcome ? SAYS[r.outcome.says] : ["not measured yet", "muted"]; return el("span", { class: tone }, text); } },
    ];
    if (!data.decisions.length) return taut.empty("No decision is recorded", "Once one is, a later run of the same job measures what it brought.", data.commands.outcome);
    return taut.table({ caption: "decisions", columns, rows: data.decisions, csv: "decisions.csv", sort: "-index" });
  };

  const proof = (data) => {
    const [text, tone] = data.verified === null ? ["?", "muted"] : data.verified ? ["✓", "good"] : ["!", "bad"];
    return el("section", { class: "card" }, el("h2", {}, "proof", taut.why("Every verb and decision is a leaf of a Merkle tree whose root is signed: what was changed, dropped or reordered later shows.")),
      el("p", {}, el("b", { class: tone, "aria-hidden": "true" }, text, " "), data.verified_is),
      data.log && el("p", { class: "note" }, "log: ", data.log),
      Object.entries(data.commands).filter(([name]) => name !== "decide").map(([name, command]) => taut.command(command, name)));
  };

  taut.view({
    name: "decisions",
    title: "Decisions",
    key: "8",
    needs: "Decisions are taken on findings of `taut analyze`.",
    async draw(root, context) {
      const draw = (data) => {
        const open = data.open.filter((found) => found.id !== null);
        const form = el("section", { class: "card" }, el("h2", {}, "decide"), open.length ? asked(data, context, draw) : taut.empty("No finding is open", "Somebody has decided on all of them, or there is none."));
        root.replaceChildren(el("h1", {}, "Decisions"), el("div", { class: "asking" }, el("div", {}, form), el("div", {}, proof(data))), el("section", { class: "card" }, decided(data)));
      };
      draw(await context.get("decisions"));
    },
  });
})();
