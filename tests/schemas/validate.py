"""Validates documents by their schemas: a list of [schema, [document, ...]] on standard input, a list of lists of the first error
of each document (or null) on standard output."""
import json
import sys

import jsonschema

if sys.argv[1:] == ["there"]:
    sys.exit(0)


def first_error(validator, document):
    error = next(validator.iter_errors(document), None)
    while error is not None and error.context:
        # Of several ways to be right, the one that goes wrong farthest inside is the one that was meant.
        error = max(error.context, key=lambda one: len(one.path))
    return None if error is None else f"/{'/'.join(map(str, error.absolute_path))}: {error.message[:400]}"


found = []
for schema, documents in json.load(sys.stdin):
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    found.append([first_error(validator, document) for document in documents])
json.dump(found, sys.stdout)
