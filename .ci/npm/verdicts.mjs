// Reads pairs of a schema and an instance, one JSON object a line, and writes
// for each what ajv makes of it: true, false, or null for a schema it refuses.
import { createInterface } from 'node:readline'
import { createRequire } from 'node:module'

const Ajv = createRequire(import.meta.url)('ajv/dist/2020').default

const ajv = new Ajv({ strict: false, validateFormats: false, validateSchema: false, logger: false })
let last, validate

for await (const line of createInterface({ input: process.stdin })) {
  const { schema, instance } = JSON.parse(line)
  const text = JSON.stringify(schema)
  if (text !== last) {
    last = text
    try {
      validate = ajv.compile(schema)
    } catch {
      validate = () => null
    }
  }
  const verdict = validate(instance)
  console.log(JSON.stringify(verdict))
}
