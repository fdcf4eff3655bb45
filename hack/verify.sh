#!/usr/bin/env bash
# Checks that what is generated is what would be generated now, and a few rules that no linter knows.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "verify: $*" >&2; failed=1; }

# Generate in a copy: verify never changes the tree it looks at, committed or not.
git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || cp --parents "$f" "$0"; done' "$work"
rm -rf "$work/config/crd/bases" # what has no type any more must not stay
make --no-print-directory -s -C "$work" generate manifests docs
(cd "$work" && go mod tidy)
for path in api config docs/codes.md go.mod go.sum; do
  diff -ru "$path" "$work/$path" || fail "$path is not current: run make generate manifests docs, go mod tidy, and commit the result"
done

while read -r file; do
  lines=$(wc -l <"$file")
  [ "$lines" -le 500 ] || fail "$file has $lines lines: split it by concern, 500 is the limit"
done < <(git ls-files --cached --others --exclude-standard '*.go' | grep -v zz_generated)

unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l)
[ -z "$unformatted" ] || fail "not formatted: $unformatted"

go vet ./...
GOOS=windows go vet ./agent/... ./cmd/capw-node/... ./test/wine/...
exit $failed
