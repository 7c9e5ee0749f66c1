//go:build race

package executor

// raceBuild is whether the race detector is compiled in. Its shadow memory
// counts as data of the process.
const raceBuild = true
