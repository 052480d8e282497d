// node replay.mjs FOLDER: prints what replay.py prints, under Pyodide. FOLDER has package/ (npm's pyodide), wheels/,
// pure/ (packages as source) and cases/.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const folder = path.resolve(process.argv[2]);
const core = path.join(folder, "package");
const { loadPyodide } = await import(pathToFileURL(path.join(core, "pyodide.mjs")));
const python = await loadPyodide({ indexURL: core + path.sep });
const wheels = path.join(folder, "wheels");
for (const name of fs.readdirSync(wheels)) {
  python.unpackArchive(new Uint8Array(fs.readFileSync(path.join(wheels, name))), "wheel");
}
const mount = (from, to) => {
  python.FS.mkdirTree(to);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: from }, to);
};
mount(path.resolve(here, "../.."), "/source");
mount(path.join(folder, "pure"), "/pure");
mount(path.join(folder, "cases"), "/mounted");
python.runPython(`
import runpy, shutil, sys
shutil.copytree("/mounted", "/recordings")  # a disk of the page's own, as a reader has it
sys.path[:0] = ["/source", "/pure"]
sys.argv = ["replay.py", "/recordings"]
runpy.run_path("/source/tests/pyodide/replay.py", run_name="__main__")
`);
