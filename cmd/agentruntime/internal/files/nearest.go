package files

import "strings"

// foldName removes what names of different habits differ in.
var foldName = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

// nearest returns the name that a misspelt one was probably meant to be, or "".
// A third of the letters may differ.
func nearest(name string, names []string) string {
	if len(name) > maxNameBytes {
		return ""
	}
	folded := foldName.Replace(strings.ToLower(name))
	best, least := "", len(folded)/3+1
	for _, candidate := range names {
		if len(candidate) > maxNameBytes {
			continue
		}
		if d := distance(folded, foldName.Replace(strings.ToLower(candidate))); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the number of letters to add, remove, replace or swap with their
// neighbour.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			replace := rows[i-1][j-1]
			if x[i-1] != y[j-1] {
				replace++
			}
			rows[i][j] = min(replace, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(x)][len(y)]
}
