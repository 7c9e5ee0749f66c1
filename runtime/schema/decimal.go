package schema

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
)

// decimal is the number ±digits × 10^exp. Its digits neither begin nor end
// with a zero; zero has none.
type decimal struct {
	negative bool
	digits   string
	exp      int
}

// parseDecimal reads a number in canonical form.
func parseDecimal(text string) decimal {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exp, ok := strings.Cut(text, "e")
	if ok {
		n, err := strconv.Atoi(exp)
		if err != nil {
			panic(err) // the reader has bounded the exponent
		}
		d.exp = n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	d.exp += len(digits) - len(d.digits) - len(fraction)
	return d
}

func (d decimal) isInteger() bool { return d.digits == "" || d.exp >= 0 }

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// compare orders numbers by their digits; nothing is rounded or expanded.
func (d decimal) compare(e decimal) int {
	if c := cmp.Compare(d.sign(), e.sign()); c != 0 {
		return c
	}
	c := cmp.Compare(len(d.digits)+d.exp, len(e.digits)+e.exp) // where the first digit stands
	if c == 0 {
		c = strings.Compare(d.digits, e.digits)
	}
	return c * d.sign()
}

// isMultipleOf reports whether d is a whole number of times the positive e,
// whose digits are also given as a number.
func (d decimal) isMultipleOf(e decimal, digits *big.Int) bool {
	if d.digits == "" {
		return true
	}
	if d.exp < e.exp {
		return false // 10 does not divide the digits of d, which do not end with a zero
	}
	n, _ := new(big.Int).SetString(d.digits, 10)
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.exp-e.exp)), digits)
	return n.Mul(n, scale).Mod(n, digits).Sign() == 0
}
