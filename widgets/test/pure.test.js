import assert from "node:assert/strict";
import test from "node:test";

import { arcs, barBox, besideCard, cellPaths, changedPlaces, nextFocus, seconds, short, spoken, unfold, verbsFor } from "../src/pure.js";

const PLOT = { x: 100, y: 50, w: 600, row: 20, bar: 11, bottom: 200 };
const CELLS = { x: 0, pitch: 10, size: 8, columns: 3, bands: [] };

test("only the places that differ are named", () => {
  assert.deepEqual([], changedPlaces("ppr", "ppr"));
  assert.deepEqual([0, 2], changedPlaces("ppr", "spf"));
  assert.deepEqual([0, 1], changedPlaces("", "pp"));
});

test("a bar stands at its time and in its row", () => {
  const box = barBox(["a", "s", 1, 4], 2, PLOT, 6, 5);
  assert.deepEqual({ x: 200, y: 90, width: 300, height: 11, middle: 95.5, radius: 2.5 }, box);
});

test("a bar without an end reaches to the present, and never backwards", () => {
  assert.equal(400, barBox(["a", "r", 1, null], 0, PLOT, 6, 5).width);
  assert.equal(1.5, barBox(["a", "r", 1, null], 0, PLOT, 6, 0).width);
});

test("waiting is thin", () => {
  assert.equal(3, barBox(["q", "q", 0, 1], 0, PLOT, 6, 5).height);
});

test("neighbouring cells in one state are one line, a new row begins a new one", () => {
  assert.deepEqual({ s: "M0 4h18M0 14h28M0 24h8", f: "M20 4h8" }, cellPaths("ssfssss", CELLS, 0));
  assert.deepEqual({}, cellPaths("", CELLS, 0));
});

test("a coordinate has one decimal at most", () => {
  assert.deepEqual(["1", "1.5", "0.3"], [1, 1.5, 0.26].map(short));
});

test("done agents are counted whatever their source", () => {
  assert.equal("4 of 6 agents done, 1 failed", spoken("slymfp"));
  assert.equal("0 of 1 agents done", spoken("p"));
});

test("arrow keys go from agent to agent and stop at the ends", () => {
  assert.deepEqual([1, 0, 0, 2, 1], [
    nextFocus("ArrowRight", 0, 3),
    nextFocus("ArrowUp", 0, 3),
    nextFocus("Home", 2, 3),
    nextFocus("End", 0, 3),
    nextFocus("x", 1, 3),
  ]);
});

test("in a grid, up and down go a row", () => {
  assert.deepEqual([14, 0, 4], [nextFocus("ArrowDown", 4, 40, 10), nextFocus("ArrowUp", 4, 40, 10), nextFocus("Escape", 4, 40, 10)]);
});

test("stretches are neighbours", () => {
  assert.deepEqual([3, 4, 5, 9], unfold([[3, 3], [9, 1]]));
  assert.deepEqual([], unfold([]));
});

test("the parts of a ring follow each other", () => {
  assert.deepEqual([[50, 0], [0, 50], [25, 50]], arcs([2, 0, 1], 4, 100));
  assert.deepEqual([[0, 0]], arcs([0], 0, 100));
});

test("what has failed can run again, what has not ended can be left out, what is done stays", () => {
  assert.deepEqual({ f: ["retry"], k: ["retry"], c: ["retry"], p: ["skip"], q: ["skip"], r: ["skip"], s: [], l: [] },
    Object.fromEntries([..."fkcpqrsl"].map((state) => [state, verbsFor(state)])));
});

test("a panel stands beside its card and inside the view", () => {
  const view = { width: 1000, height: 600 };
  const panel = { width: 400, height: 300 };
  assert.deepEqual({ x: 210, y: 90 }, besideCard({ left: 10, right: 200, top: 100 }, view, panel));
  assert.deepEqual({ x: 390, y: 290 }, besideCard({ left: 800, right: 990, top: 500 }, view, panel));
  assert.deepEqual({ x: 0, y: 10 }, besideCard({ left: 10, right: 200, top: 0 }, { width: 400, height: 300 }, panel));
});

test("durations read as the kernel writes them", () => {
  assert.deepEqual(["0.0 s", "59.9 s", "1 min 00 s", "1 h 05 min"], [0, 59.94, 59.96, 3930].map(seconds));
});
