/* Frames and ops of a timeline that is packed into a file: views/packed_timeline.py says how it is laid out. */
(() => {
  "use strict";

  const taut = window.taut;
  const MOST = 4000; // ops of a frame that are answered one by one
  // Which of several ops at a moment shows, the least first, by the codes of states.
  const LEVELS = [0, 0, 1, 2, 3, 3, 3, 3, 3, 4, 5];

  const inflated = async (bytes) => new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
  const text = (bytes) => new TextDecoder().decode(bytes);

  /** Numbers of a section; of u64 the lower halves come first, then the upper ones. */
  const numbers = (bytes, { kind, count }) => {
    if (kind === "u8") return bytes;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (kind === "u16") return Uint16Array.from({ length: count }, (_, k) => view.getUint16(2 * k, true));
    const low = (k) => view.getUint32(4 * k, true);
    return kind === "u32" ? Uint32Array.from({ length: count }, (_, k) => low(k)) : Float64Array.from({ length: count }, (_, k) => low(k) + 4294967296 * low(count + k));
  };

  class PackedTimeline {
    /** ``bytes`` as they are packed; ``axis`` is the timeline's. */
    constructor(bytes, axis) {
      const size = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
      this.header = JSON.parse(text(bytes.subarray(4, 4 + size)));
      this.sections = bytes.subarray(4 + size);
      this.axis = axis;
      this.known = new Map();
    }

    /** A section, unpacked once. */
    section(one, made) {
      if (!this.known.has(one.begin)) this.known.set(one.begin, inflated(this.sections.subarray(one.begin, one.begin + one.bytes)).then(made));
      return this.known.get(one.begin);
    }

    numbers(one) { return this.section(one, (bytes) => numbers(bytes, one)); }
    json(one) { return this.section(one, (bytes) => JSON.parse(text(bytes))); }

    /** Blocks by row and place of their step. */
    async blocks() {
      const found = await this.json(this.header.blocks);
      if (!this.byPlace) this.byPlace = new Map(found.map((block) => [block.row * this.axis.steps.length + block.step, block]));
      return this.byPlace;
    }

    async columns() {
      const names = Object.keys(this.header.ops);
      const found = await Promise.all(names.map((name) => this.numbers(this.header.ops[name])));
      return Object.fromEntries(names.map((name, k) => [name, found[k]]));
    }

    async details() {
      const found = await this.json(this.header.details);
      if (!this.byOp) this.byOp = new Map(found.map((one) => [one.op, one]));
      return this.byOp;
    }

    /** Places of the steps that overlap a time. */
    steps(begin, end) { return this.axis.steps.map((_, at) => at).filter((at) => this.axis.steps[at].begin_ns < end && this.axis.steps[at].end_ns > begin); }

    // -----------------------------------------------------------------------------------------------------------------
    // Frames

    /** What the server answers for a frame, as finely as it is packed; ``finest`` where nothing finer is. */
    async frame(asked) {
      const { begin_ns, end_ns, first_row, rows, columns } = asked, lines = Math.min(asked.lines, rows);
      const found = await this.opsOf(begin_ns, end_ns, first_row, rows);
      const shown = found ? { cells: null, finest: false } : await this.cells(begin_ns, end_ns, first_row, rows, columns, lines);
      const gates = await this.gatesOf(begin_ns, end_ns, first_row, rows);
      return { begin_ns, end_ns, first_row, rows, columns, lines, ...shown, ops: found && (await this.asColumns(found)), gates, left_out_gates: this.header.left_out_gates, names: this.header.names };
    }

    /** Codes of states by nearest neighbours. */
    async cells(begin, end, first, rows, columns, lines) {
      const [wall, from, length, many] = [this.header.wall_ns, begin, end - begin, columns].map(BigInt);
      const fine = this.header.levels.find((one) => wall * many <= length * BigInt(one.columns));
      const level = fine || this.header.levels[this.header.levels.length - 1], codes = await this.numbers(level.cells);
      const wide = BigInt(level.columns), column = new Int32Array(columns), out = new Uint8Array(lines * columns);
      for (let c = 0; c < columns; c++) column[c] = Number(((2n * from * many + BigInt(2 * c + 1) * length) / (2n * many)) * wide / wall);
      for (let line = 0; line < lines; line++) {
        const row = first + Math.floor((Math.floor(line * rows / lines) + Math.floor((line + 1) * rows / lines) - 1) / 2);
        const start = Math.floor(((row + 1) * level.lines - 1) / this.header.rows) * level.columns;
        for (let c = 0; c < columns; c++) out[line * columns + c] = codes[start + column[c]];
      }
      return { cells: out, finest: !fine };
    }

    /** Places in the columns of all ops of a frame; null where some are not packed, or there are too many. */
    async opsOf(begin, end, first, rows) {
      const blocks = await this.blocks(), shown = this.steps(begin, end), some = [];
      if (rows * shown.length > blocks.size) return null;
      for (let row = first; row < first + rows; row++) for (const at of shown) {
        const block = blocks.get(row * this.axis.steps.length + at);
        if (!block) return null;
        some.push(block);
      }
      const ops = await this.columns(), seen = new Set(), out = [];
      for (const block of some) for (let k = block.first; k < block.first + block.count; k++) {
        const at = ops.begin_ns[k], until = at + ops.wait_ns[k] + ops.work_ns[k];
        if (at >= end || (until <= begin && at < begin) || seen.has(ops.op[k])) continue;
        if (out.length === MOST) return null;
        seen.add(ops.op[k]);
        out.push([block.row, k]);
      }
      return out;
    }

    async asColumns(found) {
      const ops = await this.columns(), of = (name) => found.map(([, k]) => ops[name][k]);
      return {
        op: of("op"), row: found.map(([row]) => row), lane: of("lane"), begin_ns: of("begin_ns"), opening_ns: found.map(([, k]) => ops.begin_ns[k] + ops.wait_ns[k]),
        end_ns: found.map(([, k]) => ops.begin_ns[k] + ops.wait_ns[k] + ops.work_ns[k]), state: of("state"), wait: found.map(([, k]) => (ops.wait[k] === 255 ? -1 : ops.wait[k])), name: of("name"),
      };
    }

    async gatesOf(begin, end, first, rows) {
      const all = await this.json(this.header.gates), inside = (row) => row >= first && row < first + rows;
      const kept = all.gate.map((_, k) => k).filter((k) => all.first_ns[k] < end && all.opens_ns[k] >= begin && all.rows[k].some(inside));
      const of = (name) => kept.map((k) => all[name][k]);
      return { gate: of("gate"), name: of("name"), first_ns: of("first_ns"), opens_ns: of("opens_ns"), rows: kept.map((k) => all.rows[k].filter(inside)), last_row: of("last_row") };
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Ops

    /** An op by its number, or by row and time: {detail} where its path is packed, {brief} where only its times are, {nothing} where none is. */
    async op(asked) {
      const number = asked.op !== undefined && asked.op !== null ? Number(asked.op) : null;
      const details = await this.details();
      if (number !== null && details.has(number)) return { detail: details.get(number) };
      const found = number !== null ? await this.numbered(number) : await this.at(Number(asked.row), Number(asked.at_ns), asked.lane === undefined ? null : Number(asked.lane));
      if (!found) return { nothing: found === undefined };
      const [row, k] = found, ops = await this.columns();
      return details.has(ops.op[k]) ? { detail: details.get(ops.op[k]) } : { brief: await this.brief(row, k) };
    }

    async numbered(number) {
      const at = (await this.columns()).op.indexOf(number);
      if (at < 0) return null;
      for (const block of (await this.blocks()).values()) if (at >= block.first && at < block.first + block.count) return [block.row, at];
      return null;
    }

    async at(row, at, lane) {
      const found = await this.opsOf(at, at + 1, row, 1);
      if (!found) return null;
      const ops = await this.columns();
      const level = (k) => LEVELS[ops.begin_ns[k] + ops.wait_ns[k] > at && ops.wait[k] !== 255 ? ops.wait[k] : ops.state[k]];
      const some = found.filter(([, k]) => lane === null || ops.lane[k] === lane);
      some.sort(([, a], [, b]) => level(a) - level(b) || ops.op[a] - ops.op[b]);
      return some[0]; // undefined: nothing is here
    }

    async brief(row, k) {
      const ops = await this.columns(), states = this.axis.states;
      const waits = ops.wait[k] === 255 ? "" : `waits ${taut.ns(ops.wait_ns[k])} (${states[ops.wait[k]]}), `;
      return { op: ops.op[k], words: `${this.header.names[ops.name[k]]} of ${this.axis.rows[row].label}: ${waits}works ${taut.ns(ops.work_ns[k])} (${states[ops.state[k]]}).` };
    }
  }

  taut.inflated = inflated;
  taut.PackedTimeline = PackedTimeline;
})();
