//go:build !unix || solaris || illumos || aix

package jetstream

import "os"

// lockFile does nothing: without a lock that ends with the process, a crash
// would lock the folder for ever. The listener's port is the only guard.
func lockFile(*os.File) error { return nil }
