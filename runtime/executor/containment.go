package executor

import "strings"

// Containment is how the children are contained, in words for an operator.
type Containment struct {
	Applied []string `json:"applied"`
	Missing []string `json:"missing"` // what the host did not allow, and why
}

func (c *Containment) note(what string, err error) {
	if err != nil {
		c.Missing = append(c.Missing, what+": "+err.Error())
		return
	}
	c.Applied = append(c.Applied, what)
}

// String returns both lists in one line.
func (c Containment) String() string {
	text := "contained by " + strings.Join(c.Applied, ", ")
	if len(c.Missing) > 0 {
		text += "; not allowed here: " + strings.Join(c.Missing, ", ")
	}
	return text
}
