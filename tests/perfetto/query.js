// Asks Perfetto's trace processor, as Perfetto's own page loads it: a WebAssembly module and its loader.
// usage: node query.js DIRECTORY TRACE    DIRECTORY has trace_processor.wasm and engine_bundle.node.js
// Standard input: a JSON list of SQL queries. Standard output: JSON, { version, results: [[[cell, …], …], …] }.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const [directory, trace] = process.argv.slice(2);
const REQUEST_BYTES = 1 << 20;

// The loader runs in a browser's worker, and fetches its module there.
globalThis.WorkerGlobalScope ??= class {};
globalThis.self ??= globalThis;
globalThis.location ??= { href: "file:///" };
globalThis.XMLHttpRequest ??= class {
  open(_, url) {
    this.file = path.join(directory, path.basename(url));
  }
  send() {
    const data = fs.readFileSync(this.file);
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
  }
};

/** The function that makes the module: the bundle keeps it to itself, and starts a worker where it ends. */
function loader() {
  const text = fs.readFileSync(path.join(directory, "engine_bundle.node.js"), "utf8");
  const start = "var engineExports = requireEngine();";
  if (text.split(start).length !== 2) throw new Error(`the bundle has no ${start}`);
  const module = vm.runInThisContext(`${text.replace(start, "return requireTrace_processor();")}; engine`);
  return module.default ?? module;
}

function start() {
  return new Promise((resolve, reject) => {
    // It may be ready before it is returned.
    const module = loader()({
      locateFile: (name) => name,
      print: (line) => console.error(line),
      printErr: (line) => console.error(line),
      onRuntimeInitialized: () => queueMicrotask(() => resolve(module)),
      onAbort: reject,
    });
  });
}

// Protobuf, as much of it as is needed: numbers are varints (type 0), texts and messages are bytes (type 2).
function varint(value) {
  const bytes = [];
  for (let left = BigInt(value); ; left >>= 7n) {
    if (left < 128n) return Buffer.from([...bytes, Number(left)]);
    bytes.push(Number(left & 127n) | 128);
  }
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

function readVarint(buffer, at) {
  let value = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = buffer[at++];
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [BigInt.asIntN(64, value), at];
  }
}

/** Calls `each(field, value)` for every field of a message: a number, or bytes. */
function fields(buffer, each) {
  for (let at = 0; at < buffer.length; ) {
    let tag, value;
    [tag, at] = readVarint(buffer, at);
    switch (Number(tag & 7n)) {
      case 0:
        [value, at] = readVarint(buffer, at);
        break;
      case 1:
        value = buffer.subarray(at, (at += 8));
        break;
      case 2:
        [value, at] = readVarint(buffer, at);
        value = buffer.subarray(at, (at += Number(value)));
        break;
      default:
        throw new Error(`wire type ${tag & 7n}`);
    }
    each(Number(tag >> 3n), value);
  }
}

// Methods, fields and cells: protos/perfetto/trace_processor/trace_processor.proto of Perfetto 59.1.
const METHOD = { appendTraceData: 1, finalizeTraceData: 2, queryStreaming: 3, getStatus: 10 };

class TraceProcessor {
  constructor(module) {
    this.module = module;
    this.replies = [];
    this.sequence = 0;
    const reply = module.addFunction((at, size) => {
      this.replies.push(Buffer.from(module.HEAPU8.slice(at >>> 0, (at >>> 0) + size)));
    }, "vpi");
    this.buffer = module.ccall("trace_processor_rpc_init", "pointer", ["pointer", "number"], [reply, REQUEST_BYTES]) >>> 0;
  }

  /** Sends a request; gives the replies' fields, message after message. */
  call(method, ...more) {
    this.replies = [];
    const request = bytes(1, Buffer.concat([number(1, this.sequence++), number(2, method), ...more]));
    for (let at = 0; at < request.length; at += REQUEST_BYTES) {
      const part = request.subarray(at, at + REQUEST_BYTES);
      this.module.HEAPU8.set(part, this.buffer);
      this.module.ccall("trace_processor_on_rpc_request", "void", ["number"], [part.length]);
    }
    const found = [];
    fields(Buffer.concat(this.replies), (_, message) => {
      fields(message, (field, value) => {
        if (field === 4 || field === 5) throw new Error(`trace processor: ${value}`);
        found.push([field, value]);
      });
    });
    return found;
  }

  /** Refuses a result with an error in its field 2. */
  checked(found, result) {
    for (const [field, value] of found.filter(([field]) => field === result)) {
      fields(value, (inner, text) => {
        if (inner === 2) throw new Error(text.toString());
      });
    }
    return found;
  }

  load(file) {
    const data = fs.readFileSync(file);
    for (let at = 0; at < data.length; at += REQUEST_BYTES / 2) {
      this.checked(this.call(METHOD.appendTraceData, bytes(101, data.subarray(at, at + REQUEST_BYTES / 2))), 201);
    }
    this.checked(this.call(METHOD.finalizeTraceData), 212);
  }

  version() {
    let version = "";
    for (const [field, value] of this.call(METHOD.getStatus)) {
      if (field === 210) fields(value, (inner, text) => (version = inner === 2 ? text.toString() : version));
    }
    return version;
  }

  query(sql) {
    let columns = 0;
    const cells = [];
    for (const [field, result] of this.call(METHOD.queryStreaming, bytes(103, bytes(1, Buffer.from(sql))))) {
      if (field !== 203) continue;
      fields(result, (inner, value) => {
        if (inner === 1) columns += 1;
        else if (inner === 2) throw new Error(`${value}\n${sql}`);
        else if (inner === 3) cells.push(...batch(value));
      });
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += columns) rows.push(cells.slice(at, at + columns));
    return rows;
  }
}

/** Cells of a `CellsBatch`: their types, and the values of each type side by side. */
function batch(message) {
  const types = [], numbers = [], doubles = [], blobs = [];
  let texts = [];
  const packed = (value, into) => {
    for (let at = 0, one; at < value.length; ) {
      [one, at] = readVarint(value, at);
      into.push(one);
    }
  };
  fields(message, (field, value) => {
    if (field === 1) packed(value, types);
    else if (field === 2) packed(value, numbers);
    else if (field === 3) for (let at = 0; at < value.length; at += 8) doubles.push(value.readDoubleLE(at));
    else if (field === 4) blobs.push(value.toString("hex"));
    else if (field === 5) texts = value.toString().split("\0");
  });
  const next = { 2: () => Number(numbers.shift()), 3: () => doubles.shift(), 4: () => texts.shift(), 5: () => blobs.shift() };
  return types.map((type) => next[type]?.() ?? null);
}

async function main() {
  const queries = JSON.parse(fs.readFileSync(0, "utf8"));
  const processor = new TraceProcessor(await start());
  const version = processor.version();
  processor.load(trace);
  process.stdout.write(JSON.stringify({ version, results: queries.map((sql) => processor.query(sql)) }));
}

main().catch((error) => {
  console.error(`query.js: ${error.message ?? error}`);
  process.exit(1);
});
