package mcp

import "time"

// SetPatience sets how long programs may take, before any is begun.
func (p *Pool) SetPatience(taking, asking time.Duration) { p.taking, p.asking = taking, asking }
