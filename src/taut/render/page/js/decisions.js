/* Not drawn yet. */
(() => {
  "use strict";

  const taut = window.taut;

  taut.view({
    name: "decisions",
    title: "Decisions",
    needs: "It is drawn from the operator graph of a traced run: `taut analyze` on traces of its ranks.",
    draw(root) {
      root.append(taut.el("h1", {}, "Decisions"), taut.empty("This page is not built yet."));
    },
  });
})();
