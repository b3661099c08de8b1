#!/usr/bin/env node
// Data in, an SVG chart out. See SKILL.md.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { parseArgs } from "node:util";
import { autoType, csvParse, tsvParse } from "d3-dsv";
import * as vega from "vega";
import { compile } from "vega-lite";

const KINDS = ["bar", "line", "area", "scatter", "pie", "heatmap"];

class Failed extends Error {}

const text = { type: "string" };

function readArguments() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        kind: { ...text, default: "bar" },
        x: text,
        y: text,
        color: text,
        title: text,
        sum: { type: "boolean", default: false },
        width: { ...text, default: "720" },
        height: { ...text, default: "420" },
        output: text,
      },
    });
    if (positionals.length !== 1) throw new Failed("give one file of data or a specification.");
    if (!KINDS.includes(values.kind)) {
      throw new Failed(`there is no kind "${values.kind}"; there are: ${KINDS.join(", ")}.`);
    }
    for (const side of ["width", "height"]) {
      values[side] = Number(values[side]);
      if (!(values[side] >= 50 && values[side] <= 8000)) {
        throw new Failed(`--${side} must be a number from 50 to 8000.`);
      }
    }
    return { ...values, input: positionals[0] };
  } catch (error) {
    throw error instanceof Failed ? error : new Failed(`${error.message}.`);
  }
}

function readInput(path) {
  let content;
  try {
    content = readFileSync(path, "utf8").replace(/^\uFEFF/, "");
  } catch {
    throw new Failed(`there is no readable file ${path}; ${listing(dirname(path))}`);
  }
  const kind = extname(path).toLowerCase();
  if (kind === ".csv") return { rows: withNumbers(csvParse(content, autoType)) };
  if (kind === ".tsv") return { rows: withNumbers(tsvParse(content, autoType)) };
  if (kind !== ".json") throw new Failed(`${basename(path)} is no .csv, .tsv or .json file.`);
  let parsed;
  try {
    parsed = JSON.parse(content);
  } catch (error) {
    throw new Failed(`${basename(path)} is not valid JSON: ${error.message}.`);
  }
  if (Array.isArray(parsed)) return { rows: parsed };
  if (parsed && typeof parsed === "object" && isSpecification(parsed)) return { spec: parsed };
  throw new Failed(`${basename(path)} is neither a list of objects nor a Vega-Lite specification.`);
}

// Columns of texts that all mean numbers: "1,440.00", "$12", "35 %".
function withNumbers(rows) {
  for (const column of rows.columns) {
    const cells = rows.map((row) => row[column]).filter((cell) => cell !== null && cell !== "");
    const meant = (cell) => typeof cell === "number" || /^[$€£¥]?-?\d[\d,]*(\.\d+)?\s*%?$/.test(String(cell));
    if (!cells.length || cells.some((cell) => cell instanceof Date || !meant(cell))) continue;
    for (const row of rows) {
      if (typeof row[column] === "string") row[column] = Number(row[column].replace(/[^\d.-]/g, ""));
    }
  }
  return rows;
}

function isSpecification(value) {
  return ["mark", "layer", "hconcat", "vconcat", "concat", "facet", "repeat"].some((k) => k in value);
}

function listing(folder) {
  try {
    return `${folder} holds: ${readdirSync(folder).sort().join(", ") || "nothing"}.`;
  } catch {
    return `there is no folder ${folder} either.`;
  }
}

function typeOf(rows, column) {
  const values = rows.map((row) => row[column]).filter((value) => value !== null && value !== "");
  if (values.every((value) => typeof value === "number")) return "quantitative";
  return values.every((value) => value instanceof Date) ? "temporal" : "nominal";
}

function chooseColumns(rows, args) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  if (!rows.length || !columns.length) throw new Failed("the file holds no rows of data.");
  const types = Object.fromEntries(columns.map((name) => [name, typeOf(rows, name)]));
  const named = (option) => {
    const wanted = args[option];
    if (wanted === undefined) return undefined;
    const found = columns.find((name) => name.toLowerCase() === wanted.toLowerCase());
    if (!found) {
      throw new Failed(`there is no column "${wanted}" for --${option}; there are: ${columns.join(", ")}.`);
    }
    return found;
  };
  const given = { x: named("x"), y: named("y"), color: named("color") };
  const numbers = columns.filter((name) => types[name] === "quantitative");
  const free = (names) => names.find((name) => name !== given.x && name !== given.y);
  const y = given.y ?? free(numbers);
  if (y === undefined) throw new Failed(`no column holds numbers; there are: ${columns.join(", ")}.`);
  const others = columns.filter((name) => name !== y);
  const preferred = args.kind === "scatter" ? numbers : others.filter((n) => types[n] !== "quantitative");
  const x = given.x ?? preferred.find((name) => name !== y) ?? others[0];
  if (x === undefined) throw new Failed(`a chart needs two columns; there is only "${y}".`);
  return { x, y, color: given.color, types };
}

function specificationOf(rows, args, { x, y, color, types }) {
  const aggregate = args.sum ? { aggregate: "sum" } : {};
  const field = (name, more = {}) => ({ field: escapeField(name), type: types[name], title: name, ...more });
  const value = field(y, { ...aggregate, title: y });
  const series = color ? { color: field(color) } : {};
  const across = field(x, types[x] === "nominal" ? { sort: null, axis: { labelAngle: -30 } } : {});
  const marks = { bar: "bar", line: { type: "line", point: true }, area: "area", scatter: "point" };
  const base = {
    data: { values: rows },
    width: args.width,
    height: args.height,
    background: "white",
    ...(args.title ? { title: args.title } : {}),
  };
  if (args.kind === "pie") {
    return { ...base, mark: { type: "arc", tooltip: true }, encoding: { theta: value, color: { ...field(x), sort: null } } };
  }
  if (args.kind === "heatmap") {
    if (!color) throw new Failed("a heatmap needs --color, the column of its second axis.");
    return { ...base, mark: "rect", encoding: { x: across, y: field(color, { sort: null }), color: value } };
  }
  return { ...base, mark: marks[args.kind], encoding: { x: across, y: value, ...series } };
}

function escapeField(name) {
  return name.replace(/[\\.[\]]/g, (c) => `\\${c}`);
}

async function draw(spec) {
  const problems = [];
  const logger = vega.logger(vega.Warn);
  logger.error = (...said) => (problems.push(said.join(" ")), logger);
  logger.warn = () => logger;
  const loader = vega.loader();
  loader.load = async (address) => {
    problems.push(`the specification loads ${address}; put the data into it instead`);
    return "";
  };
  let svg;
  try {
    const { spec: compiled } = compile(spec, { logger });
    const view = new vega.View(vega.parse(compiled), { renderer: "none", loader, logger });
    svg = await view.toSVG();
  } catch (error) {
    throw error instanceof Failed ? error : new Failed(`the chart cannot be drawn: ${error.message}.`);
  }
  if (problems.length) throw new Failed(`the chart cannot be drawn: ${problems[0]}.`);
  return svg;
}

async function main() {
  const args = readArguments();
  const { rows, spec } = readInput(args.input);
  const columns = rows ? chooseColumns(rows, args) : {};
  const svg = await draw(spec ?? specificationOf(rows, args, columns));
  const name = basename(args.input).replace(/(\.vl)?\.[^.]+$/, "");
  const file = args.output ?? join("/workspace/output", `${name}.svg`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, svg);
  const size = /<svg[^>]*?width="([\d.]+)"[^>]*?height="([\d.]+)"/.exec(svg) ?? [];
  const { x, y, color } = columns;
  const about = { file, kind: rows ? args.kind : "specification", x, y, color, rows: rows?.length };
  console.log(JSON.stringify({ ...about, width: Number(size[1]), height: Number(size[2]) }));
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Failed)) throw error;
  console.error(`chart-svg: ${error.message}`);
  process.exit(2);
}
