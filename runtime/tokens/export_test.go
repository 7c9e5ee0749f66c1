package tokens

// Counting returns an estimator for a model that tells of every text it counts.
func Counting(model string, counted func(text string)) *Estimator {
	e := New(model)
	count := e.count
	e.count = func(text string) int64 {
		counted(text)
		return count(text)
	}
	return e
}

// MaxCached is how many counts are remembered at least.
const MaxCached = maxCached
