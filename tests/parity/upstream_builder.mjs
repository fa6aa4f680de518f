// Run upstream's own command builder over the cases of a JSON file: node upstream_builder.mjs BUILDER.mjs IN.json OUT.json
import fs from "node:fs";
import { pathToFileURL } from "node:url";

const [builder, source, target] = process.argv.slice(2);
const { resolveCommand } = await import(pathToFileURL(builder));
const { recipes, strategies, taxonomy, cases } = JSON.parse(fs.readFileSync(source));
const built = cases.map(({ recipe, variant, strategy, hardware, features }) =>
  resolveCommand(recipes[recipe], variant, strategy, hardware, features, strategies, taxonomy));
fs.writeFileSync(target, JSON.stringify(built.map(({ command, env }) => ({ command, env }))));
