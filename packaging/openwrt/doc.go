// Package openwrt contains the init script for OpenWrt gateways, and a test of this script with a simulated procd, the
// service manager of OpenWrt.
package openwrt
