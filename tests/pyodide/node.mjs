// node node.mjs FOLDER PROGRAM ARGUMENTS: runs a program of this folder under Pyodide. FOLDER has package/ (npm's pyodide),
// wheels/ and cases/, which the program finds as /cases.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const [folder, program, ...rest] = [path.resolve(process.argv[2]), ...process.argv.slice(3)];
const core = path.join(folder, "package");
const { loadPyodide } = await import(pathToFileURL(path.join(core, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: core + path.sep });
const wheels = path.join(folder, "wheels");
for (const name of fs.readdirSync(wheels)) {
  if (name.endsWith(".whl") && !name.startsWith("agent_magic")) {
    python.unpackArchive(new Uint8Array(fs.readFileSync(path.join(wheels, name))), "wheel");
  }
}
const mount = (from, to) => {
  python.FS.mkdirTree(to);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: from }, to);
};
mount(path.resolve(here, "../.."), "/source");
mount(path.join(folder, "cases"), "/mounted");
const told = JSON.stringify([program, ...rest]);
await python.runPythonAsync(`
import inspect, json, runpy, shutil, sys
shutil.copytree("/mounted", "/cases")  # a disk of the page's own, as a reader has it
sys.path.insert(0, "/source")
sys.argv = json.loads(${JSON.stringify(told)})
main = runpy.run_path(f"/source/tests/pyodide/{sys.argv[0]}", run_name="__main__").get("main")
if inspect.iscoroutinefunction(main):
    await main()
`);
process.exit(0); // something of the loop may keep Node alive
